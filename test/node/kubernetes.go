package node

import "context"

// Kubernetes returns the directory of the programs of Kubernetes that a node has: kube-apiserver,
// kube-controller-manager, kube-scheduler, kubectl, kubelet, and etcd under the name server. It builds
// them unless the cache has them. They are static.
func Kubernetes(ctx context.Context, cfg Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, BuildTimeout)
	defer cancel()
	c, err := openCache(cfg)
	if err != nil {
		return "", err
	}
	unlock, err := c.lock(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer unlock()
	a, err := kubernetes.artifact()
	if err != nil {
		return "", err
	}
	return c.get(ctx, cfg, a)
}
