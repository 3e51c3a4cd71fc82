"""The node agent: collects, stores, shows; later decides and acts."""
