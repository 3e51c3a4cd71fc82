"""External metrics: the forecast use of workloads for HorizontalPodAutoscalers, as the API external.metrics.k8s.io."""
