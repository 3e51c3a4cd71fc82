"""NRI plugin: the runtime hooks inside containerd and CRI-O."""
