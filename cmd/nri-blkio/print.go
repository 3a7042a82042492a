package main

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
)

// print writes the result of a command: as JSON, or as the text that write makes of it.
func (a *app) print(o output, result any, write func(*bytes.Buffer)) error {
	var out bytes.Buffer
	if o == outputJSON {
		if err := terminal.WriteJSON(&out, result); err != nil {
			return err
		}
	} else {
		write(&out)
	}
	_, err := a.stdout.Write(out.Bytes())
	return err
}

// podName names a pod by its namespace and name; "" if its name is not known.
func podName(namespace, pod string) string {
	if namespace == "" || pod == "" {
		return pod
	}
	return namespace + "/" + pod
}

// containerName names a container of a pod, or the pod if container is "".
func containerName(namespace, pod, container string) string {
	if container == "" {
		return podName(namespace, pod)
	}
	return podName(namespace, pod) + " " + container
}

// output is the flag -o.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
	outputYAML  output = "yaml" // of calibrate only
)

func (o *output) add(cmd *cobra.Command) {
	*o = outputTable
	cmd.Flags().VarP(o, "output", "o", "table or json")
}

func (o *output) String() string { return string(*o) }

// Type names the flag's value in help texts.
func (o *output) Type() string { return "format" }

// Set checks the value as the flags are parsed.
func (o *output) Set(s string) error {
	if *o = output(s); *o != outputTable && *o != outputJSON {
		return fmt.Errorf("unknown format %q (write %s or %s)", s, outputTable, outputJSON)
	}
	return nil
}
