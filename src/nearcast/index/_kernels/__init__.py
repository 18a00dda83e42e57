"""The loops of the indexes: one module an index, under the same name."""
