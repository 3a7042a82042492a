package house

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nri-blkio/nri-blkio/blkio/cgroupfs"
	"github.com/nri-blkio/nri-blkio/plugin/iocost"
	"github.com/nri-blkio/nri-blkio/plugin/record"
	"github.com/nri-blkio/nri-blkio/plugin/shares"
)

// TestAttributesAreDistinct verifies that no extended attribute of the program is taken for another one. A directory can have
// all of them, and those of the program's containers are listed by the beginning of their names.
func TestAttributesAreDistinct(t *testing.T) {
	names := attributeNames(t)
	for _, known := range []string{record.Xattr, shares.Attribute, iocost.Attribute} {
		if !slices.Contains(names, known) {
			t.Errorf("%s is not among %v", known, names)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("io"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := unix.Setxattr(dir, name, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := cgroupfs.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	for _, name := range names {
		if listed, err := tree.Cgroup(".").ListAbove(name); err != nil || len(listed) > 0 {
			t.Errorf("%s has attributes about %v (%v)", name, listed, err)
		}
	}
}

// attributeNames returns the texts in the code of the program that are names of extended attributes.
func attributeNames(t *testing.T) (out []string) {
	for _, s := range sources(t, ".") {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if text, isText := n.(*ast.BasicLit); isText {
				if name, err := strconv.Unquote(text.Value); err == nil && strings.HasPrefix(name, "user.") && !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
			return true
		})
	}
	return out
}
