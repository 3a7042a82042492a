package calibrate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nri-blkio/nri-blkio/blkio"
	"github.com/nri-blkio/nri-blkio/blkio/storage"
)

// Identity identifies a disk by properties that stay when its name changes. A cloud's volume that was resized
// is another disk, because its rates often depend on its size.
type Identity struct {
	Serial string `json:"serial,omitempty"`
	WWID   string `json:"wwid,omitempty"`
	Model  string `json:"model,omitempty"`
	Size   uint64 `json:"size"` // bytes
}

// IdentityOf returns the identity of a disk.
func IdentityOf(d *storage.DiskInfo) Identity {
	return Identity{Serial: validText(d.Serial), WWID: validText(d.WWID), Model: validText(d.Model), Size: d.Size}
}

// validText escapes bytes that are not UTF-8, which JSON would replace: a device can have any bytes
// there.
func validText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// key returns the ID of the disk among others of the node, "" if it has none. A WWID belongs to one disk, while
// all namespaces of an NVMe controller have its serial number.
func (i Identity) key() string { return cmp.Or(i.WWID, i.Serial) }

// Check returns ErrNoIdentity for a disk whose calibration cannot be saved.
func (i Identity) Check() error {
	if i.key() == "" {
		return ErrNoIdentity
	}
	return nil
}

var (
	// ErrNoIdentity is the error for a disk without a serial number and without a WWID. After a restart of the
	// node it cannot be recognized.
	ErrNoIdentity = errors.New("the disk has neither a serial number nor a WWID")
	// ErrOtherDisk is the error for a saved calibration of a disk with the same WWID, or without one the same
	// serial number, that differs otherwise.
	ErrOtherDisk = errors.New("the saved calibration is of another disk")
)

// version is the version of the format of saved calibrations.
const version = 1

// saved is a calibration as it is saved, and as it is printed. The model and the targets are in
// the form of io.cost.model and io.cost.qos.
type saved struct {
	Version int    `json:"version"`
	Model   string `json:"model"`
	QOS     string `json:"qos"`
	fields
}

// fields has the fields of a Calibration, without its methods.
type fields Calibration

// MarshalJSON returns the form in which a calibration is saved.
func (c *Calibration) MarshalJSON() ([]byte, error) {
	return json.Marshal(saved{version, c.Model.String(), c.QOS.String(), fields(*c)})
}

// Save saves a calibration below a directory, in a file of the disk. A reader sees either the old
// or the new one as a whole.
func Save(dir string, c *Calibration) (file string, err error) {
	if file, err = fileOf(dir, c.Disk); err != nil {
		return "", err
	}
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("save calibration: %w", err)
	}
	if err := replace(file, append(data, '\n')); err != nil {
		return "", fmt.Errorf("save calibration: %w", err)
	}
	return file, nil
}

// replace replaces a file, which survives a crash of the node from then on.
func replace(file string, data []byte) error {
	next := file + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return nil
}

func fileOf(dir string, i Identity) (string, error) {
	if err := i.Check(); err != nil {
		return "", err
	}
	return filepath.Join(dir, fileName(i.key())+".json"), nil
}

// maxFileName leaves room for the suffixes of a file, in bytes.
const maxFileName = 200

// fileName returns a name for a file, which an identity is not: a device can have any text there, of
// any length.
func fileName(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		if b == '-' || b == '_' || '0' <= b && b <= '9' || 'A' <= b && b <= 'Z' || 'a' <= b && b <= 'z' {
			out.WriteByte(b)
		} else {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	if out.Len() <= maxFileName {
		return out.String()
	}
	return fmt.Sprintf("%s~%x", out.String()[:maxFileName/2], sha256.Sum256([]byte(text)))
}

// Load returns the calibration of a disk that was saved below a directory; nil if there is none. The error is
// ErrOtherDisk if the file belongs to another disk. If the content is invalid, the error names the file.
func Load(dir string, d *storage.DiskInfo) (*Calibration, error) {
	want := IdentityOf(d)
	file, err := fileOf(dir, want)
	if errors.Is(err, ErrNoIdentity) {
		return nil, nil
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("load calibration: %w", err)
	}
	defer f.Close()
	c, err := parse(f)
	if err != nil {
		return nil, fmt.Errorf("load calibration: parse %s: %w", file, err)
	}
	if c.Disk != want {
		return nil, fmt.Errorf("load calibration: %s: %w", file, ErrOtherDisk)
	}
	return c, nil
}

// maxSaved bounds a file before it is decoded, in bytes.
const maxSaved = 1 << 20

// parse decodes a saved calibration. An unknown field is an error, because it comes from another version and
// can change the meaning of the others.
func parse(r io.Reader) (*Calibration, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSaved+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxSaved {
		return nil, fmt.Errorf("larger than %d bytes", maxSaved)
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var s saved
	if err := decoder.Decode(&s); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("data after the calibration")
	}
	if s.Version != version {
		return nil, fmt.Errorf("version %d, not %d", s.Version, version)
	}
	return s.calibration()
}

// calibration parses the texts, and checks that a kernel takes them.
func (s *saved) calibration() (*Calibration, error) {
	c := Calibration(s.fields)
	var err error
	if c.Model, c.QOS, err = blkio.ParseCost(s.Model, s.QOS); err != nil {
		return nil, err
	}
	if c.Model.String() != s.Model || c.QOS.String() != s.QOS {
		return nil, errors.New("the model or the targets have not all values, in the kernel's order")
	}
	return &c, nil
}
