"""All committed rows of a file sink, for tests."""

from nearcast.jobs.sink_files import SinkFiles


def committed_rows(folder):
    files = SinkFiles(str(folder))
    return [row for name in files.new(ingested=()) for row in files.rows_of(name)]
