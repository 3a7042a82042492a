package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// BuildTimeout bounds a build from an empty cache on two cores and a slow mirror.
const BuildTimeout = 40 * time.Minute

// notRoot returns the error for a cache without a root image: its files have many owners. With
// one, an ordinary user can boot.
func notRoot(cfg Config) error {
	small := ""
	if cfg.Small {
		small = " --small"
	}
	return errors.New("the node is not built yet, and building it takes root; run once: " +
		`sudo env "PATH=$PATH" "NRI_BLKIO_CACHE=${NRI_BLKIO_CACHE:-$HOME/.cache/nri-blkio}" go run ./node/cmd/node prepare` + small + " (in test/)")
}

// parts are the files that a boot takes.
type parts struct {
	vmlinuz, initrd string
	root, hostKey   string
}

// Build builds the parts of nodes with the kernel and the engine of cfg, for all values of the other
// parameters, unless the cache has them. Run as root, it first installs the Debian packages
// that it needs.
func Build(ctx context.Context, cfg Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	_, err := build(ctx, cfg.withDefaults())
	return err
}

func build(ctx context.Context, cfg Config) (parts, error) {
	timeout := BuildTimeout
	if kernelOptions[cfg.Kernel] != "" {
		timeout += compileTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	c, err := openCache(cfg)
	if err != nil {
		return parts{}, err
	}
	unlock, err := c.lock(ctx, cfg)
	if err != nil {
		return parts{}, err
	}
	defer unlock()
	if err := installHostPackages(ctx, cfg, hostPackages); err != nil {
		return parts{}, err
	}
	return c.build(ctx, cfg)
}

// build gets every artifact. The root image knows the keys of its parts, so that
// with a warm cache none of them is looked at.
func (c cache) build(ctx context.Context, cfg Config) (parts, error) {
	// Without sources nothing can be built, but what is built can be booted.
	mirror, mirrorErr := debianMirror("/etc/apt")
	base := baseArtifact(cfg, mirror)
	kernel := kernelArtifact(cfg, mirror)
	keys := []string{base.key, kernel.key}
	programs := make(map[string]artifact)
	for _, p := range rootPrograms(cfg) {
		a, err := p.artifact()
		if err != nil {
			return parts{}, err
		}
		programs[p.name] = a
		keys = append(keys, a.key)
	}
	var made rootParts
	root, err := rootArtifact(cfg, keys, func() rootParts { return made })
	if err != nil {
		return parts{}, err
	}
	if !c.has(root) {
		if os.Geteuid() != 0 {
			return parts{}, notRoot(cfg)
		}
		if mirrorErr != nil {
			return parts{}, mirrorErr
		}
		if made, err = c.rootParts(ctx, cfg, base, kernel, programs); err != nil {
			return parts{}, err
		}
	}
	rootDir, err := c.get(ctx, cfg, root)
	if err != nil {
		return parts{}, err
	}
	kernelDir, err := c.get(ctx, cfg, kernel)
	if err != nil {
		return parts{}, err
	}
	return parts{
		vmlinuz: filepath.Join(kernelDir, "vmlinuz"),
		initrd:  filepath.Join(kernelDir, "initrd.img"),
		root:    filepath.Join(rootDir, "root.img"),
		hostKey: filepath.Join(rootDir, "hostkey.pub"),
	}, nil
}

// rootParts gets what the root image is made of. The Go programs keep the CPUs
// busy for minutes, so the downloads run beside them.
func (c cache) rootParts(ctx context.Context, cfg Config, base, kernel artifact, programs map[string]artifact) (rootParts, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	made := rootParts{programs: make(map[string]string)}
	debian := make(chan error, 1)
	go func() {
		err := c.debianParts(ctx, cfg, base, kernel, &made)
		if err != nil {
			cancel() // the build has failed: do not wait for the other half
		}
		debian <- err
	}()
	var err error
	for _, p := range rootPrograms(cfg) {
		if made.programs[p.name], err = c.get(ctx, cfg, programs[p.name]); err != nil {
			cancel()
			break
		}
	}
	return made, errors.Join(err, <-debian)
}

// debianParts gets the parts that are Debian's, into made.
func (c cache) debianParts(ctx context.Context, cfg Config, base, kernel artifact, made *rootParts) (err error) {
	if made.base, err = c.get(ctx, cfg, base); err != nil {
		return err
	}
	made.kernel, err = c.get(ctx, cfg, kernel)
	return err
}
