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
	return ratesOf(Origin{Claim: claim, Driver: driver}, DriverKeys(), metadata, func(e *Entry, key, value string) *Problem {
		name := strings.TrimPrefix(key, driverPrefix)
		rate, p := ParseAmount(KeysOf(name)[0], value)
		e.set(name, rate)
		return p
	})
}
