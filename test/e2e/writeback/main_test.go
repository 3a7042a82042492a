package writeback

import (
	"fmt"
	"os"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == churnCommand {
		if err := churn(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(lab.Main(m, "writeback"))
}

// Most of these tests read the state of the kernel themselves. Their writers are processes in cgroups that
// the tests create, which takes less time than containers.

// filesystemsWithOwners are those that the tests have a volume of.
var filesystemsWithOwners = []string{"ext4", "xfs", "btrfs"}
