package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// app has what the commands share.
type app struct {
	kubectl
	namespace, node string // of the pod; "" for the namespace of the context, and for the node of the pod
	plugin          string // the namespace of the plugin
	all, yes        bool   // all nodes; --yes
	output          string // "" for the default
}

// nodeCommand is a command of nri-blkio that runs on a node.
type nodeCommand struct {
	name, short string
	part        string // the label app.kubernetes.io/name of the pods in which it runs
	pod         string // the arguments for a pod, with its name as %s; "" if the command takes none
}

func nodeCommands() []nodeCommand {
	const limits, writeback = "nri-blkio", "nri-blkio-writeback" // which may load BPF programs
	return []nodeCommand{
		{"status", "Show requested limits and limits in force, or with -A the problems of all nodes", limits, "--pod=%s"},
		{"top", "Show what containers do on their disks, once", writeback, "--pod=%s"},
		{"why", "Say what a pod waits for on its disks", writeback, "%s"},
		{"check", "Show the limits that a pod would get on its node", limits, manifest},
		{"clear", "Remove the limits of a running pod", limits, "--pod=%s"},
		{"devices", "Show the disks of a node and what each can enforce", limits, ""},
		{"owner", "Name the container whose limit applies to writes to a file of a node", writeback, ""},
		{"calibrate", "Measure a disk of a node for weights, in a privileged pod", limits, ""},
	}
}

// manifest stands for the manifest of the pod as the standard input.
const manifest = "--file=-"

// command returns the command of kubectl for one of a node. It takes its own flags out of the arguments, and passes on the others.
func (a *app) command(c nodeCommand) *cobra.Command {
	cmd := &cobra.Command{Use: c.name + " POD [ARGUMENT]... | --node NODE [ARGUMENT]...", Short: c.short, DisableFlagParsing: true}
	if c.pod == "" {
		cmd.Use = c.name + " --node NODE [ARGUMENT]..."
	}
	cmd.Long = c.short + ".\n\nThe arguments are those of nri-blkio " + c.name + ", which runs on the node."
	const env = "NRI_BLKIO_NAMESPACE"
	f := cmd.Flags()
	f.StringVarP(&a.namespace, "namespace", "n", "", "the namespace of the pod")
	f.StringVar(&a.node, "node", "", "the node, instead of that of a pod")
	f.StringVar(&a.context, "context", "", "the context of kubectl")
	f.StringVar(&a.file, "kubeconfig", "", "the configuration of kubectl")
	f.StringVar(&a.plugin, "plugin-namespace", cmp.Or(os.Getenv(env), "nri-blkio"), "the namespace of nri-blkio (environment: "+env+")")
	if c.name == "status" {
		f.BoolVarP(&a.all, "all-nodes", "A", false, "the problems of all nodes, with -n those of pods of one namespace")
		f.StringVarP(&a.output, "output", "o", "", "with -A table or json, otherwise as on the node")
	}
	runs := a.onNode
	if c.name == "calibrate" {
		runs, cmd.Long = a.calibrate, calibrateLong
		f.BoolVar(&a.yes, "yes", false, "load the disk")
	}
	cmd.ValidArgsFunction = a.completed(c, f)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		rest, err := a.parse(f, args)
		if isHelp, _ := f.GetBool("help"); isHelp {
			return cmd.Help()
		}
		if err != nil {
			return err
		}
		if a.all {
			return a.overview(cmd.Context(), rest)
		}
		if a.output != "" {
			rest = append(rest, "--output="+a.output)
		}
		return runs(cmd.Context(), c, rest)
	}
	return cmd
}

func (a *app) parse(own *pflag.FlagSet, args []string) (rest []string, err error) {
	mine, rest := split(own, args)
	if err := own.Parse(mine); err != nil {
		return nil, usage("%w", err)
	}
	for _, name := range []string{a.namespace, a.node, a.plugin} {
		if name != "" && !isName(name) {
			return nil, usage("invalid name %q of a namespace or a node", name)
		}
	}
	return rest, nil
}

func split(own *pflag.FlagSet, args []string) (mine, rest []string) {
	for len(args) > 0 && args[0] != "--" {
		text := strings.TrimLeft(args[0], "-")
		name, _, hasValue := strings.Cut(text, "=")
		var flag *pflag.Flag
		switch dashes := len(args[0]) - len(text); {
		case dashes == 1 && len(name) == 1:
			flag = own.ShorthandLookup(name)
		case dashes == 2:
			flag = own.Lookup(name)
		}
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
	return mine, append(rest, args[min(1, len(args)):]...)
}

// isName reports whether an object can have a name (RFC 1123). None begins with "-", so kubectl takes none for a flag.
var isName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`).MatchString

func (a *app) onNode(ctx context.Context, c nodeCommand, args []string) error {
	node, command, stdin := a.node, append([]string{"/nri-blkio"}, strings.Fields(c.name)...), io.Reader(nil)
	if c.pod == manifest {
		stdin = a.stdin
	}
	switch {
	case node != "" && a.namespace != "":
		command = append(command, "--namespace="+a.namespace)
	case node != "":
	case c.pod == "":
		return usage("%s: no node (write --node NODE)", c.name)
	case len(args) == 0 || strings.HasPrefix(args[0], "-"):
		return usage("%s: no pod (write the pod first, or --node NODE)", c.name)
	default:
		p, err := a.findPod(ctx, args[0])
		if err != nil {
			return err
		}
		node, command, args = p.Spec.NodeName, append(command, strings.ReplaceAll(c.pod, "%s", p.Metadata.Namespace+"/"+p.Metadata.Name)), args[1:]
		if stdin != nil {
			stdin = bytes.NewReader(p.data)
		}
	}
	out, err := a.part(ctx, c, node, "name")
	if err != nil {
		return err
	}
	if len(out) == 0 {
		return a.noPart(c, node)
	}
	return a.exec(ctx, a.plugin, strings.Fields(string(out))[0], stdin, append(command, args...)...)
}

// part returns the plugin's pods on a node in which a command runs.
func (a *app) part(ctx context.Context, c nodeCommand, node, output string) ([]byte, error) {
	return a.get(ctx, "pods", "--namespace="+a.plugin, "--selector=app.kubernetes.io/name="+c.part,
		"--field-selector=status.phase=Running,spec.nodeName="+node, "--output="+output)
}

func (a *app) noPart(c nodeCommand, node string) error {
	return fmt.Errorf("node %s: no pod %s runs there in namespace %s (--plugin-namespace names another one)", node, c.part, a.plugin)
}

// pod is what is read of a pod.
type pod struct {
	Metadata struct{ Namespace, Name string }
	Spec     struct{ NodeName string }
	data     []byte // all of it, as JSON
}

func (a *app) findPod(ctx context.Context, text string) (*pod, error) {
	name, args := text, []string{"pod", "--output=json"}
	namespace, after, isQualified := strings.Cut(text, "/")
	if isQualified {
		name = after
	} else {
		namespace = a.namespace
	}
	if !isName(name) || isQualified && !isName(namespace) {
		return nil, usage("invalid pod %q (write POD or NAMESPACE/POD)", text)
	}
	if namespace != "" {
		args = append(args, "--namespace="+namespace)
	}
	data, err := a.get(ctx, append(args, name)...)
	if err != nil {
		return nil, err
	}
	p := pod{data: data}
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("read pod %s: %w", text, err)
	}
	if p.Spec.NodeName == "" {
		return nil, fmt.Errorf("pod %s is on no node yet", text)
	}
	return &p, nil
}

// completed returns the function by which a shell completes the arguments of a command. The API server has the pod, the namespaces and
// the nodes. What follows a pod or a node is completed by nri-blkio there. Messages are left out: they would disturb the line.
func (a *app) completed(c nodeCommand, own *pflag.FlagSet) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var out bytes.Buffer
		a.stdin, a.stdout, a.stderr = strings.NewReader(""), &out, io.Discard
		rest, err := a.parse(own, args)
		objects := "pods"
		switch {
		case err != nil: // a flag lacks its value
			objects = map[string]string{"-n": "namespaces", "--namespace": "namespaces", "--node": "nodes"}[args[len(args)-1]]
		case len(rest) > 0 || a.node != "" || c.pod == "":
			c.name = cobra.ShellCompNoDescRequestCmd + " " + c.name
			_ = a.onNode(cmd.Context(), c, append(rest, word)) // without an answer there are no words
			words := strings.Split(strings.TrimSpace(out.String()), "\n")
			return words[:len(words)-1], cobra.ShellCompDirectiveNoFileComp // the last one is the directive
		}
		if objects == "" {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ask := []string{objects}
		if objects == "pods" && a.namespace != "" {
			ask = append(ask, "--namespace="+a.namespace)
		}
		found, _ := a.get(cmd.Context(), append(ask, "--output=name")...) // without an answer there are no words
		var words []string
		for object := range strings.FieldsSeq(string(found)) {
			_, name, _ := strings.Cut(object, "/") // pod/NAME
			words = append(words, name)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}
