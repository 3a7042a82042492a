package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary the commands of the scripts: the plugin, and a kubectl without a cluster.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kubectl-blkio": func() { os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
		"kubectl":       func() { os.Exit(fakeKubectl(os.Args[1:])) },
	})
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Setup: func(env *testscript.Env) error {
			plugin, err := exec.LookPath("kubectl-blkio")
			env.Setenv("CLUSTER", env.WorkDir)
			env.Setenv("PLUGIN", plugin)
			complete, absErr := filepath.Abs("../../deploy/krew/kubectl_complete-blkio")
			env.Setenv("COMPLETE", complete)
			return errors.Join(err, absErr)
		},
	})
}

// exits fails the script unless a command has an exit status: exits STATUS COMMAND [ARGUMENT]...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	got := 0
	if failed, ok := errors.AsType[*exec.ExitError](ts.Exec(args[1], args[2:]...)); ok {
		got = failed.ExitCode()
	}
	if strconv.Itoa(got) != args[0] {
		ts.Fatalf("exit status %d, want %s", got, args[0])
	}
}

var randomName = regexp.MustCompile(`(nri-blkio-calibrate-)[a-z0-9]+`) // constant

// fakeKubectl answers with files of the directory $CLUSTER, and adds its arguments to the file requests there.
func fakeKubectl(args []string) (status int) {
	cluster := os.Getenv("CLUSTER")
	requests, err := os.OpenFile(filepath.Join(cluster, "requests"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(requests, randomName.ReplaceAllString(strings.Join(args, " "), "${1}RANDOM"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for _, verb := range []string{"create", "wait", "delete"} {
		if slices.Contains(args, verb) {
			return fakeChange(cluster, verb)
		}
	}
	if slices.Contains(args, "exec") {
		return fakeExec(cluster, args)
	}
	answer := "leases"
	switch {
	case slices.ContainsFunc(args, randomName.MatchString):
		answer = "state"
	case slices.Contains(args, "pod"):
		answer = "pod"
	case slices.Contains(args, "pods") && slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--selector=") }):
		answer = "parts"
	case args[len(args)-1] == "--output=name": // as for completion
		answer = "names"
	}
	data, err := os.ReadFile(filepath.Join(cluster, answer))
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error from server (NotFound): \x1b[31mabsent")
		return 1
	}
	os.Stdout.Write(data)
	return 0
}

// fakeChange fails if the file VERB-fails exists. It keeps the manifest of a creation in the file created.
func fakeChange(cluster, verb string) (status int) {
	if message, err := os.ReadFile(filepath.Join(cluster, verb+"-fails")); err == nil {
		os.Stderr.Write(message)
		return 1
	}
	if verb == "create" {
		var text bytes.Buffer
		data, err := io.ReadAll(os.Stdin)
		if err == nil {
			err = json.Indent(&text, append(data, '\n'), "", "  ")
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(cluster, "created"), randomName.ReplaceAll(text.Bytes(), []byte("${1}RANDOM")), 0o600)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	fmt.Println("pod/x and what was done")
	return 0
}

// fakeExec writes the command, its standard input and the file output. The exit status is that of the file status, if there is one.
func fakeExec(cluster string, args []string) (status int) {
	fmt.Println(strings.Join(args[slices.Index(args, "--")+1:], " "))
	if slices.Contains(args, "--stdin") {
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(cluster, "output")); err == nil {
		os.Stdout.Write(data)
	}
	text, err := os.ReadFile(filepath.Join(cluster, "status"))
	if err != nil {
		return 0
	}
	status, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil { // as kubectl fails
		fmt.Fprint(os.Stderr, string(text))
		return 1
	}
	fmt.Fprintf(os.Stderr, "a note of the \x1b[2Jnode\ncommand terminated with exit code %d\n", status)
	return status
}
