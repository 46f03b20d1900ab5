"""The commands of ``rangewatch``, one module each: ``add`` declares its arguments, ``run`` does it.

Output goes to stdout, logs and progress to stderr. ``run`` returns the exit code; what went wrong is raised
as ``errors.CliError`` and printed as one line.
"""
