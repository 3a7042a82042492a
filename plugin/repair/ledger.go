package repair

import (
	"time"

	"github.com/nri-blkio/nri-blkio/blkio/writeback"
)

const (
	// maxFiles is the size of the ledger. An account may use all of it that no other
	// account needs, see makeRoom.
	maxFiles = 1 << 13
	// forgetAfter is how long a file stays in the ledger without writes.
	forgetAfter = 30 * time.Second
	// evictFrom is the number of files from which the oldest one makes room for another.
	evictFrom = 8
)

// limits has the limits on the writes of domains, see domains.
type limits interface {
	// limited reports whether the writes of a domain are limited.
	limited(domain) bool
	// live reports whether a domain's cgroups can write, or have a limit.
	live(domain) bool
	// stricter reports whether one domain may write less than another on a filesystem.
	stricter(a, b domain, fs *filesystem) bool
}

// ledger counts the writers of each file, and decides which files to move. It does no I/O.
type ledger struct {
	files      map[writeback.Inode]*file
	limits     limits
	strict     bool   // contested files go to the writer with the smallest limit
	full       uint64 // bytes that were written to files without room in the ledger
	gaveUp     int64  // repairs that took too long
	movedFiles []movedFile
	// touched are the files that were written to since the last decision about them.
	// brought are the files that count for each account.
	touched map[*file]bool
	brought map[account]map[*file]bool
	swept   time.Time
}

func newLedger(l limits) *ledger {
	return &ledger{
		files: map[writeback.Inode]*file{}, limits: l,
		touched: map[*file]bool{}, brought: map[account]map[*file]bool{},
	}
}

// movedFile is a file that was moved to its writer.
type movedFile struct {
	writeback.Inode
	to   uint64        // ID of a cgroup
	took time.Duration // since it was misplaced
}

// concerns reports whether a limit depends on which of two domains owns a file.
func (l *ledger) concerns(writer, owner domain) bool {
	return l.limits.limited(writer) || l.limits.limited(owner)
}

// add adds a sample to the counts of its file.
func (l *ledger) add(now time.Time, s *sample) {
	f := l.files[s.inode]
	if f == nil {
		if s.writer.domain == s.owner.domain && s.charged == s.writer.domain || !l.concerns(s.writer.domain, s.owner.domain) {
			return // its writer owns it, or no limit matters
		}
		if len(l.files) >= maxFiles && !l.makeRoom(s.account) {
			l.full += s.bytes
			return
		}
		f = &file{Inode: s.inode}
		l.insert(f, s.account)
	}
	l.touched[f] = true
	f.fs, f.owner, f.history.lastWrite = s.fs, s.owner, now
	if s.writer.domain != s.owner.domain && l.concerns(s.writer.domain, s.owner.domain) {
		f.history.misplaced += s.bytes
	}
	f.share(now, s.writer.domain).add(now, s)
}

// insert adds a file to the ledger, which counts for an account.
func (l *ledger) insert(f *file, of account) {
	f.history.account = of
	l.files[f.Inode] = f
	if l.brought[of] == nil {
		l.brought[of] = map[*file]bool{}
	}
	l.brought[of][f] = true
}

// remove removes a file from the ledger.
func (l *ledger) remove(f *file) {
	delete(l.files, f.Inode)
	delete(l.touched, f)
	of := l.brought[f.history.account]
	if delete(of, f); len(of) == 0 {
		delete(l.brought, f.history.account)
	}
}

// makeRoom removes a file from a full ledger, for an account that has fewer files than its
// equal share. Then some other account has more than its share. The account with most files
// loses one that was not written to for a long time.
func (l *ledger) makeRoom(in account) bool {
	mine, accounts := len(l.brought[in]), len(l.brought)
	if mine == 0 {
		accounts++
	}
	if mine >= maxFiles/accounts {
		return false
	}
	var most map[*file]bool
	for _, of := range l.brought {
		if len(of) > len(most) {
			most = of
		}
	}
	var oldest *file
	compared := 0
	for f := range most { // in any order
		if oldest == nil || f.history.lastWrite.Before(oldest.history.lastWrite) {
			oldest = f
		}
		if compared++; compared == evictFrom {
			break
		}
	}
	if len(most) <= mine+1 || oldest == nil {
		return false
	}
	l.remove(oldest)
	return true
}

// sweep removes files that were not written to for a while.
func (l *ledger) sweep(now time.Time) {
	if now.Sub(l.swept) < time.Second {
		return
	}
	l.swept = now
	for _, f := range l.files {
		if now.Sub(f.history.lastWrite) > forgetAfter {
			l.remove(f)
		}
	}
}

// takeMoved returns the files that were moved since the last call.
func (l *ledger) takeMoved() []movedFile {
	out := l.movedFiles
	l.movedFiles = nil
	return out
}
