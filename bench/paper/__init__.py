"""The experiments of the paper, run with this library.

published   what the paper printed, and how its experiments were run
data        data sets, splits, and what to do where one is missing
runs        units of work whose results are kept on disk: a stopped run resumes
figure1     the toy data: sketches of 40 to 140 rows, Huber and ε-insensitive losses
table1      joint quantile regression
table2      multi-output ridge regression
theory      critical radii, K-satisfiability, the best p
aims        what was to be reached
plots       PNG
report      Markdown and CSV

Every number is computed in the run, but for those that are said to be the paper's.
"""
