package node

import (
	"context"
	"path/filepath"
)

// Kubernetes returns the directory of the programs of Kubernetes that a node has: kube-apiserver,
// kube-controller-manager, kube-scheduler, kubectl, kubelet, and etcd under the name server. It builds
// them unless the cache has them. They are static.
func Kubernetes(ctx context.Context, cfg Config) (string, error) {
	return kubernetes.get(ctx, cfg)
}

// Helm returns the file of the program helm, which it builds unless the cache has it. It is static.
func Helm(ctx context.Context, cfg Config) (string, error) {
	dir, err := helm.get(ctx, cfg)
	return filepath.Join(dir, "helm"), err
}

// get returns the directory of the programs.
func (p goProgram) get(ctx context.Context, cfg Config) (string, error) {
	a, err := p.artifact()
	if err != nil {
		return "", err
	}
	return getLocked(ctx, cfg, a)
}

// getLocked returns the directory of an artifact, and holds the lock of the cache meanwhile.
func getLocked(ctx context.Context, cfg Config, a artifact) (string, error) {
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
	return c.get(ctx, cfg, a)
}
