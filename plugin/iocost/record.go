package iocost

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// Attribute is the extended attribute of the root cgroup with the settings of this program.
const Attribute = "user.nri-blkio-iocost"

// maxRecord is the largest size of the attribute. The kernel takes 64 KiB for one attribute
// (XATTR_SIZE_MAX in include/uapi/linux/limits.h). For all of a cgroup it takes 128 KiB, and until the
// new value is stored the old one counts as well (kernfs_vfs_user_xattr_add in fs/kernfs/inode.c).
const maxRecord = 60 << 10

// ErrNoRoom means that the record has no room for another disk. Nothing is set on such a disk: it
// could not be removed again.
var ErrNoRoom = errors.New("no room for the disk in the record " + Attribute)

// owned has fingerprints of the lines that this program has written for a disk, "" for a file that it has not
// written. So the record has room for about 870 disks.
type owned struct {
	Model string `json:"model,omitempty"`
	QOS   string `json:"qos,omitempty"`
	// Scheduler is that of the disk before this program set bfq, "" if it has not. IsBFQ is true once bfq was in force.
	Scheduler string `json:"scheduler,omitempty"`
	IsBFQ     bool   `json:"bfq,omitempty"`
	// Disk is Setup.Identity.
	Disk string `json:"disk,omitempty"`
}

func (o owned) isEmpty() bool { return o.Model == "" && o.QOS == "" && o.Scheduler == "" }

// short returns the fingerprints of texts.
func (o owned) short() owned {
	o.Model, o.QOS, o.Disk = fingerprint(o.Model), fingerprint(o.QOS), fingerprint(o.Disk)
	return o
}

// fingerprint returns a short text that stands for a text. Those of "" and of a fingerprint are themselves.
func fingerprint(text string) string {
	if text == "" || strings.HasPrefix(text, "#") {
		return text
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(text)) // never fails
	return fmt.Sprintf("#%08x", hash.Sum32())
}

// isText reports whether two texts are equal. One of them, or both, may be a fingerprint.
func isText(a, b string) bool { return a == b || fingerprint(a) == fingerprint(b) }

// parseRecord parses the value of the attribute:
//
//	{"254:16":{"model":"#1f3a9c2b","qos":"#77aa01fe","disk":"#0d52c88e"}}
func parseRecord(data []byte) (map[blkio.Dev]owned, error) {
	byName := map[string]owned{}
	if err := json.Unmarshal(data, &byName); err != nil {
		return nil, err
	}
	out := make(map[blkio.Dev]owned, len(byName))
	for name, o := range byName {
		dev, err := blkio.ParseDev(name)
		if err != nil {
			return nil, err
		}
		out[dev] = o
	}
	return out, nil
}

// formatRecord is the inverse of parseRecord. The error is ErrNoRoom if the record does not fit into room.
func formatRecord(all map[blkio.Dev]owned, room int) ([]byte, error) {
	byName := make(map[string]owned, len(all))
	for dev, o := range all {
		byName[dev.String()] = o
	}
	data, err := json.Marshal(byName)
	if len(data) > room {
		return nil, ErrNoRoom
	}
	return data, err // the type can be marshaled
}

// record changes the attribute's settings of a device.
func (a *actual) record(dev blkio.Dev, own owned) error {
	own = own.short()
	if a.owned[dev] == own || a.owned[dev].isEmpty() && own.isEmpty() {
		return nil
	}
	next := maps.Clone(a.owned)
	if next[dev] = own; own.isEmpty() {
		delete(next, dev)
	}
	if !a.dryRun {
		if err := a.writeAttribute(next); err != nil {
			return err
		}
	}
	a.owned = next
	return nil
}

func (a *actual) writeAttribute(all map[blkio.Dev]owned) error {
	if len(all) == 0 {
		return a.root.RemoveXattr(Attribute)
	}
	data, err := formatRecord(all, a.room)
	if err != nil {
		return err
	}
	return a.root.WriteXattr(Attribute, data)
}
