"""The asv suite; see bench/README.md."""
