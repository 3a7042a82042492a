package poddoc

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio/hostfs"
)

const suffix = ".json"

// FileName returns the name of the document of a pod with a valid UID.
func FileName(uid string) string { return uid + suffix }

// UIDOf returns the UID of the pod whose document has this name. It returns false for all other
// files, such as one that is not complete yet.
func UIDOf(fileName string) (uid string, ok bool) {
	uid, ok = strings.CutSuffix(fileName, suffix)
	return uid, ok && IsUID(uid)
}

// Read reads the document of a pod. The error wraps [io/fs.ErrNotExist] if there is none, and
// [ErrVersion] if another version of the program has written it.
func Read(dir, uid string) (*Document, error) {
	if !IsUID(uid) {
		return nil, invalid("uid", uid)
	}
	file := filepath.Join(dir, FileName(uid))
	data, err := hostfs.ReadShared(file, MaxSize)
	if err != nil {
		return nil, err
	}
	d, err := Decode(data)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if d.UID != uid {
		return nil, fmt.Errorf("read %s: %w", file, invalid("uid", d.UID))
	}
	return d, nil
}

// Names returns the UIDs of the documents in a directory, sorted. more is true if the directory has
// more files than [MaxDocuments]; some documents may be missing then.
func Names(dir string) (uids []string, more bool, err error) {
	names, more, err := hostfs.SharedNames(dir, MaxDocuments)
	for _, name := range names {
		if uid, ok := UIDOf(name); ok {
			uids = append(uids, uid)
		}
	}
	return uids, more, err
}
