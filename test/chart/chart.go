// Package chart renders the Helm chart of nri-blkio with the program helm, and returns the files of deploy/ that are
// made from it. Its tests verify what the chart renders for many values.
package chart

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nri-blkio/nri-blkio/test/node"
)

// Dir is the chart's directory below deploy/.
const Dir = "helm/nri-blkio"

// Chart is the chart, with the program that renders it.
type Chart struct {
	helm   string // the program
	deploy string // the directory deploy/
}

// Open returns the chart in a directory deploy/. It builds helm, unless the cache has it.
func Open(ctx context.Context, deploy string) (*Chart, error) {
	helm, err := node.Helm(ctx, node.Config{Log: os.Stderr})
	if err != nil {
		return nil, err
	}
	return &Chart{helm: helm, deploy: deploy}, nil
}

// Render is what Helm renders the chart with.
type Render struct {
	Values    string   // YAML
	Namespace string   // of the release; "" is nri-blkio
	Args      []string // more arguments of `helm template`
}

// image is the image of the manifests in deploy/.
const image = "image: {repository: registry.example/nri-blkio, tag: latest}\n"

// Template returns what `helm template` prints, by the path of the template in the chart. Each text has the
// documents of one template.
func (c *Chart) Template(ctx context.Context, r Render) (map[string]string, error) {
	namespace := r.Namespace
	if namespace == "" {
		namespace = "nri-blkio"
	}
	args := append([]string{"template", "nri-blkio", filepath.Join(c.deploy, Dir), "--namespace", namespace, "--values", "-"}, r.Args...)
	out, err := c.Helm(ctx, r.Values, args...)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	source := regexp.MustCompile(`(?m)^---\n# Source: nri-blkio/(.*)\n`)
	at := source.FindAllStringSubmatchIndex(out, -1)
	for i, m := range at {
		end := len(out)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		name, document := out[m[2]:m[3]], strings.TrimSpace(out[m[1]:end])+"\n"
		if before := files[name]; before != "" {
			document = before + "---\n" + document
		}
		files[name] = document
	}
	return files, nil
}

// Helm runs helm. The error has what it prints.
func (c *Chart) Helm(ctx context.Context, input string, args ...string) (string, error) {
	var out, problem bytes.Buffer
	cmd := exec.CommandContext(ctx, c.helm, args...)
	// No configuration of the user, and no cluster.
	cmd.Env = append(os.Environ(), "HELM_NO_PLUGINS=1", "KUBECONFIG=/dev/null")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &problem
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", args[0], err, problem.String())
	}
	return out.String(), nil
}

// everything are the values of all files of deploy/: each has one part, so that a kustomization can choose.
const everything = image + `
namespace: {create: true}
validator: {enabled: true}
cluster: {enabled: true}
admission: {grammar: true, tenants: true, failClosed: true, reserve: true, reserveSet: true}
`

// Manifests returns the files of deploy/ that are made from the chart, by their paths there.
func (c *Chart) Manifests(ctx context.Context) (map[string]string, error) {
	rendered, err := c.Template(ctx, Render{Values: everything})
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	take := func(file, template string) {
		text := rendered["templates/"+template+".yaml"]
		if text == "" {
			err = errors.Join(err, fmt.Errorf("template %s renders nothing", template))
		}
		files[file] = text
	}
	for _, name := range []string{
		"namespace", "serviceaccount", "resourcequota", "daemonset", "writeback", "validator", "cluster", "cluster-rbac", "admission", "admission-set",
	} {
		take(path.Join("kubernetes", name+".yaml"), name)
	}
	for _, name := range []string{"grammar", "tenants", "fail-closed"} {
		take(path.Join("admission", name+".yaml"), "admission-"+name)
	}
	for file, of := range map[string]string{"prometheus/alerts.yaml": "alerts.yaml", "grafana/nri-blkio.json": "dashboard.json"} {
		text, readErr := os.ReadFile(filepath.Join(c.deploy, Dir, "files", of))
		files[file], err = string(text), errors.Join(err, readErr)
	}
	policy, policyErr := Policy(rendered["templates/policy.yaml"])
	files["kubernetes/policy.yaml"] = policy
	return files, errors.Join(err, policyErr)
}

// Policy returns the node policy in a ConfigMap.
func Policy(configMap string) (string, error) {
	var object struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(configMap), &object); err != nil {
		return "", err
	}
	text := object.Data["policy.yaml"]
	if text == "" {
		return "", errors.New("the ConfigMap has no policy.yaml")
	}
	return text, nil
}
