package annotation

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/blkio"
)

// driverPrefix is the prefix of the rates that a storage driver writes into the metadata of an attachment.
const driverPrefix = "qos.linbit.com/"

// DriverKeys returns the keys of rates in the metadata of an attachment (VolumeAttachment.status.attachmentMetadata). A storage
// driver sets them with the result of ControllerPublishVolume. They are those that nri-volume-qos reads and linstor-csi writes:
// whole numbers of bytes or operations per second. The key "device" beside them is not read, because the plugin finds the disks itself.
func DriverKeys() (out []string) {
	for k := range blkio.NumLimits {
		out = append(out, driverPrefix+k.String())
	}
	return out
}

// ParseDriver is ParseClaim for the rates in the metadata of an attachment that a storage driver wrote. A rate of zero is none. The list is
// nil without rates as well.
func ParseDriver(claim, driver string, metadata map[string]string) (*List, *Error) {
	from, e := Origin{Claim: claim, Driver: driver}, claimEntry(claim, "")
	var texts []string
	for i, name := range DriverKeys() {
		value, found := metadata[name]
		if !found {
			continue
		}
		value = strings.TrimSpace(value)
		texts = append(texts, name+"="+value)
		rate, p := ParseAmount(blkio.Key(i), value)
		if p != nil {
			return nil, New(Identity{From: from, Text: texts[len(texts)-1]}, p)
		}
		e.Limits[i] = rate
	}
	if e.Limits.IsZero() {
		return nil, nil
	}
	e.text = strings.Join(texts, " ")
	return &List{From: from, Entries: []Entry{e}, count: 1}, nil
}
