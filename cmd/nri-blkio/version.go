package main

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/prometheus/common/version"
	"github.com/spf13/cobra"
)

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  nri-blkio version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.stdout, versionText())
			return err
		},
	}
}

func versionText() string {
	return fmt.Sprintf("nri-blkio %s %s %s %s/%s", buildVersion(), version.GetRevision(), version.GoVersion, version.GoOS, version.GoArch)
}

// buildVersion returns the version that the linker has set, or that of the module in a plain
// `go install`.
func buildVersion() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return cmp.Or(version.Version, module, "(devel)")
}
