package main

import (
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nri-blkio/nri-blkio/internal/terminal"
	"github.com/nri-blkio/nri-blkio/plugin/inspect"
	"github.com/nri-blkio/nri-blkio/plugin/record"
)

// completionTime is how long a shell waits for words.
const completionTime = 500 * time.Millisecond

// completed returns a function that has a shell complete words of the records on the node. args are the arguments before the word.
func (a *app) completed(words func(r *record.Record, args []string) []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		found := make(chan []string, 1)
		go func() { found <- a.recordedWords(words, args) }()
		select {
		case out := <-found:
			return out, cobra.ShellCompDirectiveNoFileComp
		case <-time.After(completionTime):
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

// recordedWords returns the words of all records that can be read, each once. It leaves out what a terminal could not show.
func (a *app) recordedWords(words func(r *record.Record, args []string) []string, args []string) (out []string) {
	tree, err := a.cgroups()
	if err != nil {
		return nil
	}
	defer tree.Close()
	records, _ := inspect.Records(tree, inspect.Filter{}) // those that can be read
	for _, r := range records {
		out = append(out, words(r.Record, args)...)
	}
	out = slices.DeleteFunc(out, func(word string) bool { return word == "" || terminal.Escape(word) != word })
	slices.Sort(out)
	return slices.Compact(out)
}

func recordedPod(r *record.Record, _ []string) []string {
	return []string{inspect.Filter{Namespace: r.Namespace, Name: r.Pod}.String()}
}

func recordedDisks(r *record.Record, _ []string) []string {
	return slices.Collect(maps.Values(r.Disks))
}

// recordedTarget completes a pod, and after it a container of that pod.
func recordedTarget(r *record.Record, args []string) []string {
	switch pod := recordedPod(r, nil); {
	case len(args) == 0:
		return pod
	case len(args) == 1 && (args[0] == pod[0] || args[0] == r.Pod):
		return []string{r.Container}
	}
	return nil
}
