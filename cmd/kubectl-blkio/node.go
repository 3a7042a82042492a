package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// nodeCommand is a command of nri-blkio that runs on a node.
type nodeCommand struct {
	name, short string
	part        string // the label app.kubernetes.io/name of the pods in which it runs
	// pod returns the arguments for a pod; nil if the command takes none.
	pod func(namespace, name string) []string
}

// The parts in which commands run. The second one has the privileges for BPF.
const limitsPart, writebackPart = "nri-blkio", "nri-blkio-writeback"

func nodeCommands() []nodeCommand {
	flag := func(namespace, name string) []string { return []string{"--pod=" + namespace + "/" + name} }
	operand := func(namespace, name string) []string { return []string{namespace + "/" + name} }
	manifest := func(string, string) []string { return []string{"-f", "-"} } // its standard input, see onNode
	return []nodeCommand{
		{"status", "Show requested limits and limits in force; with -A the problems of all nodes", limitsPart, flag},
		{"top", "Show what containers do on their disks", writebackPart, flag},
		{"why", "Say what a pod waits for on its disks", writebackPart, operand},
		{"check", "Show the limits that a pod would get on its node", limitsPart, manifest},
		{"clear", "Remove the limits of a running pod", limitsPart, flag},
		{"devices", "Show the disks of a node and what each can enforce", limitsPart, nil},
		{"owner", "Name the container whose limit applies to writes to a file of a node", writebackPart, nil},
	}
}

// command returns the command of kubectl for one of a node. The program takes its own flags out of the arguments, and passes on the
// others, which it need not know.
func (a *app) command(c nodeCommand) *cobra.Command {
	use := c.name + " POD | --node NODE"
	if c.pod == nil {
		use = c.name + " --node NODE"
	}
	var all bool
	var output string
	cmd := &cobra.Command{Use: use + " [ARGUMENT]...", Short: c.short, DisableFlagParsing: true}
	cmd.Long = c.short + ".\n\nOther arguments are those of nri-blkio " + c.name + ", which runs on the node."
	f := cmd.Flags()
	f.StringVarP(&a.namespace, "namespace", "n", "", "the namespace of the pod; with -A, only problems of its pods")
	f.StringVar(&a.node, "node", "", "the node, instead of that of a pod")
	f.StringVar(&a.context, "context", "", "the context of kubectl")
	f.StringVar(&a.file, "kubeconfig", "", "the configuration of kubectl")
	f.StringVar(&a.plugin, "plugin-namespace", pluginNamespace(), "the namespace of nri-blkio (environment: "+namespaceEnv+")")
	if c.name == "status" {
		cmd.Use = "status POD | --node NODE | -A [ARGUMENT]..."
		f.BoolVarP(&all, "all-nodes", "A", false, "the problems of all nodes")
		f.StringVarP(&output, "output", "o", "", "with -A: table, wide (all nodes as well) or json; otherwise as on the node")
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		own, rest := split(f, args)
		if err := f.Parse(own); err != nil {
			return usage("%w", err)
		}
		if isHelp, _ := f.GetBool("help"); isHelp {
			return cmd.Help()
		}
		if err := checkNames(map[string]string{"--namespace": a.namespace, "--node": a.node, "--plugin-namespace": a.plugin}); err != nil {
			return err
		}
		if all {
			if len(rest) > 0 || a.node != "" {
				return usage("status: -A is for all nodes (write no pod, no --node and no other flags)")
			}
			return a.overview(cmd.Context(), output)
		}
		if output != "" {
			rest = append(rest, "--output="+output)
		}
		return a.onNode(cmd.Context(), c, rest)
	}
	return cmd
}

const namespaceEnv = "NRI_BLKIO_NAMESPACE"

func pluginNamespace() string {
	if namespace := os.Getenv(namespaceEnv); namespace != "" {
		return namespace
	}
	return "nri-blkio"
}

// split returns the arguments that are flags of the program, with their values, and all others.
func split(own *pflag.FlagSet, args []string) (mine, rest []string) {
	for len(args) > 0 {
		if args[0] == "--" {
			return mine, append(rest, args[1:]...)
		}
		flag, hasValue := lookup(own, args[0])
		if flag == nil {
			rest, args = append(rest, args[0]), args[1:]
			continue
		}
		n := 1
		if flag.NoOptDefVal == "" && !hasValue {
			n = min(2, len(args))
		}
		mine, args = append(mine, args[:n]...), args[n:]
	}
	return mine, rest
}

// lookup returns the flag that an argument names, nil for none, and whether the argument has its value as well.
func lookup(own *pflag.FlagSet, arg string) (flag *pflag.Flag, hasValue bool) {
	if long, isLong := strings.CutPrefix(arg, "--"); isLong {
		long, _, hasValue = strings.Cut(long, "=")
		return own.Lookup(long), hasValue
	}
	if len(arg) > 1 && arg[0] == '-' {
		return own.ShorthandLookup(arg[1:2]), len(arg) > 2
	}
	return nil, false
}

// onNode runs a command on the node of a pod, or on --node.
func (a *app) onNode(ctx context.Context, c nodeCommand, args []string) error {
	node, command, stdin := a.node, []string{"/nri-blkio", c.name}, io.Reader(nil)
	if c.name == "check" {
		stdin = a.stdin
	}
	switch {
	case node != "" && a.namespace != "":
		command = append(command, "--namespace="+a.namespace)
	case node != "":
	case c.pod == nil:
		return usage("%s: no node (write --node NODE)", c.name)
	case len(args) == 0 || strings.HasPrefix(args[0], "-"):
		return usage("%s: no pod (write the pod first, or --node NODE)", c.name)
	default:
		p, err := a.findPod(ctx, args[0])
		if err != nil {
			return err
		}
		node, command, args = p.Spec.NodeName, append(command, c.pod(p.Metadata.Namespace, p.Metadata.Name)...), args[1:]
		if stdin != nil {
			stdin = bytes.NewReader(p.data)
		}
	}
	part, err := a.findPart(ctx, c.part, node)
	if err != nil {
		return err
	}
	return a.exec(ctx, a.plugin, part, stdin, append(command, args...)...)
}

// pod is what is read of a pod.
type pod struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct{ NodeName string }
	data     []byte // all of it, as JSON
}

// findPod reads a pod, [NAMESPACE/]NAME.
func (a *app) findPod(ctx context.Context, text string) (*pod, error) {
	namespace, name, isQualified := strings.Cut(text, "/")
	if !isQualified {
		namespace, name = a.namespace, text
	}
	if err := checkNames(map[string]string{"pod": name, "namespace of the pod": namespace}); err != nil {
		return nil, err
	}
	if name == "" || isQualified && namespace == "" {
		return nil, usage("invalid pod %q (write POD or NAMESPACE/POD)", text)
	}
	args := []string{"pod", name, "--output=json"}
	if namespace != "" {
		args = append(args, "--namespace="+namespace)
	}
	data, err := a.get(ctx, args...)
	if err != nil {
		return nil, err
	}
	p := pod{data: data}
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("kubectl get pod %s: %w", text, err)
	}
	if p.Spec.NodeName == "" {
		return nil, fmt.Errorf("pod %s/%s is on no node yet", p.Metadata.Namespace, p.Metadata.Name)
	}
	return &p, nil
}

// findPart returns the name of the running pod of a part on a node.
func (a *app) findPart(ctx context.Context, part, node string) (string, error) {
	out, err := a.get(ctx, "pods", "--namespace="+a.plugin, "--selector=app.kubernetes.io/name="+part,
		"--field-selector=status.phase=Running,spec.nodeName="+node, "--output=name")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if name, isPod := strings.CutPrefix(strings.TrimSpace(line), "pod/"); isPod {
			return name, nil
		}
	}
	return "", fmt.Errorf("node %s: no pod %s runs there in namespace %s (--plugin-namespace names another one)", node, part, a.plugin)
}
