package weights

import (
	"os"
	"testing"

	"github.com/nri-blkio/nri-blkio/test/e2e/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m, "weights")) }
