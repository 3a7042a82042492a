package storage

import (
	"errors"

	"golang.org/x/sys/unix"
)

// retryEINTR calls fn again for as long as a signal interrupts it.
func retryEINTR(fn func() (int, error)) (int, error) {
	for {
		n, err := fn()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
