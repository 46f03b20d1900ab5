"""What the indexes cost, measured: ``rangewatch bench``. Needs the extra ``bench``."""
