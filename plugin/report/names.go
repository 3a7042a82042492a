package report

// PodName names a pod by its namespace and name; "" if its name is not known.
func PodName(namespace, pod string) string {
	if namespace == "" || pod == "" {
		return pod
	}
	return namespace + "/" + pod
}

// ContainerName names a container of a pod, or the pod if container is "".
func ContainerName(namespace, pod, container string) string {
	if container == "" {
		return PodName(namespace, pod)
	}
	return PodName(namespace, pod) + " " + container
}
