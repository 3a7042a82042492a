package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

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
