// Package writes the Debian package of .goreleaser.yaml without the program, which is large. The e2e tests have it on the node, and add it.
//
//	go run ./package -root ../.. -o nri-blkio.deb
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"go.yaml.in/yaml/v3"
)

func main() {
	root := flag.String("root", "../..", "the repository")
	out := flag.String("o", "nri-blkio.deb", "the package to write")
	flag.Parse()
	if err := run(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "package:", err)
		os.Exit(1)
	}
}

func run(root, out string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	err = os.Chdir(root) // the configuration has paths that are relative
	var info *nfpm.Info
	if err == nil {
		info, err = read("deb")
	}
	if err == nil {
		err = deb.Default.Package(info, f)
	}
	return errors.Join(err, f.Close())
}

func read(format string) (*nfpm.Info, error) {
	text, err := os.ReadFile(".goreleaser.yaml")
	if err != nil {
		return nil, err
	}
	var project struct {
		Packages []map[string]any `yaml:"nfpms"`
	}
	if err := yaml.Unmarshal(text, &project); err != nil {
		return nil, err
	}
	if len(project.Packages) != 1 {
		return nil, fmt.Errorf(".goreleaser.yaml: %d packages, want one", len(project.Packages))
	}
	// The other fields are those of nfpm.
	fields := project.Packages[0]
	fields["name"], fields["arch"], fields["version"] = fields["package_name"], "amd64", "0.0.1"
	for _, name := range []string{"ids", "package_name", "file_name_template", "formats", "bindir", "mtime"} {
		delete(fields, name)
	}
	if text, err = yaml.Marshal(fields); err != nil {
		return nil, err
	}
	config, err := nfpm.Parse(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	config.MTime = time.Unix(0, 0)
	info, err := config.Get(format)
	if err != nil {
		return nil, err
	}
	return nfpm.WithDefaults(info), nil
}
