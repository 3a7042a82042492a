package report

import "cmp"

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

// containerOrPod names the cgroup of a container, or that of the pod if container is "".
func containerOrPod(container string) string { return cmp.Or(container, "(the pod)") }
