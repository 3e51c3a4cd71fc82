"""KubeSchedulerConfiguration, the file of the stock scheduler and of Koordinator's, read as settings of this one."""
