package mailbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"
)

// putIn writes a document of a namespace with this size.
func (r *readerTest) putIn(namespace string, n, size int) {
	r.t.Helper()
	r.putBytes(n, encoded(r.t, &document{Version: 1, UID: testUID(n), Namespace: namespace, Text: strings.Repeat("x", size)}))
}

// inUse returns the sizes of the documents in use by number, in the form "NUMBER:SIZE".
func (r *readerTest) inUse() string {
	var out []string
	for n := range format().MaxFiles {
		if f := r.known[testUID(n)]; f != nil && f.reported {
			out = append(out, fmt.Sprintf("%d:%d", n, f.size))
		}
	}
	return strings.Join(out, " ")
}

// TestRoom verifies which documents give way.
func TestRoom(t *testing.T) {
	type put struct {
		namespace string
		n, size   int
	}
	for name, tt := range map[string]struct {
		puts []put // each is read before the next one
		want string
	}{
		"room":                                 {[]put{{"a", 1, 50}, {"b", 2, 50}}, "1:50 2:50"},
		"the largest one of the largest":       {[]put{{"a", 1, 30}, {"a", 2, 60}, {"b", 3, 20}}, "1:30 3:20"},
		"the new one is the largest":           {[]put{{"a", 1, 30}, {"a", 2, 60}, {"a", 3, 70}}, "1:30 2:60"},
		"the new one is as large":              {[]put{{"a", 1, 30}, {"a", 2, 60}, {"a", 3, 60}}, "1:30 2:60"},
		"a smaller one of the same namespace":  {[]put{{"a", 1, 30}, {"a", 2, 60}, {"a", 3, 20}}, "1:30 3:20"},
		"several":                              {[]put{{"a", 1, 30}, {"a", 2, 30}, {"a", 3, 30}, {"b", 4, 45}}, "3:30 4:45"},
		"none in vain":                         {[]put{{"a", 1, 30}, {"a", 2, 30}, {"b", 3, 20}, {"b", 4, 70}}, "1:30 2:30 3:20"},
		"an earlier version is used":           {[]put{{"a", 1, 40}, {"b", 2, 40}, {"b", 2, 90}}, "1:40 2:40"},
		"an earlier version makes room":        {[]put{{"a", 1, 10}, {"b", 2, 80}, {"b", 2, 90}}, "1:10 2:90"},
		"moves to another namespace":           {[]put{{"a", 1, 50}, {"b", 2, 50}, {"a", 2, 60}}, "1:50 2:50"},
		"larger than all":                      {[]put{{"a", 1, 50}, {"b", 2, 101}}, "1:50"},
		"as much as another namespace":         {[]put{{"a", 1, 60}, {"b", 2, 60}}, "1:60"},
		"three namespaces, the largest of all": {[]put{{"a", 1, 40}, {"b", 2, 35}, {"c", 3, 30}}, "2:35 3:30"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReaderTest(t)
			now := time.Now()
			for i, p := range tt.puts {
				r.Format.MaxKept = 4096 // one look reads everything
				r.putIn(p.namespace, p.n, p.size)
				r.Format.MaxKept = 100
				r.Read(now.Add(time.Duration(i) * time.Hour))
			}
			if got := r.inUse(); got != tt.want {
				t.Errorf("in use are %s, want %s", got, tt.want)
			}
		})
	}
}

// TestRoomProperty verifies for random documents that the bound holds, that the receiver has those in use, that a namespace
// with no more than its equal part has all its documents, and that nothing changes any more once the files do not.
func TestRoomProperty(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := newReaderTest(t)
		r.Format.MaxKept = 1000
		received := map[string]int{}
		changes := 0
		r.Changed = func(uid string, d *document) {
			changes++
			if delete(received, uid); d != nil {
				received[uid] = len(d.Text)
			}
		}
		type doc struct {
			namespace string
			size      int
		}
		there, now := map[int]doc{}, time.Now()
		for range 40 {
			n := random.IntN(format().MaxFiles)
			if there[n].size > 0 && random.IntN(4) == 0 {
				r.must(os.Remove(r.file(n)))
				delete(there, n)
			} else {
				there[n] = doc{"aaaaaaaabbbbbccccdde"[n : n+1], 1 + random.IntN(300)}
				r.putIn(there[n].namespace, n, there[n].size)
			}
			if random.IntN(3) == 0 { // several changes in one look
				continue
			}
			now = now.Add(time.Hour)
			r.Read(now)
		}
		for range 30 { // documents that have given way may return
			now = now.Add(time.Hour)
			r.Read(now)
		}
		changes = 0
		for range 3 {
			now = now.Add(time.Hour)
			r.Read(now)
		}
		used := map[string]int{}
		for _, d := range there {
			used[d.namespace] += d.size
		}
		kept := sum(received)
		if kept != r.kept || kept != sum(r.used) || kept > r.Format.MaxKept || changes > 0 {
			t.Errorf("seed %d: %d bytes are received, %d counted, %d changes of unchanged files", seed, kept, r.kept, changes)
		}
		for n, d := range there {
			if got := received[testUID(n)]; got != d.size && used[d.namespace] <= r.Format.MaxKept/len(used) {
				t.Errorf("seed %d: document %d of %+v is not in use, but %d; all: %v", seed, n, d, got, used)
			}
		}
	}
}

func sum(sizes map[string]int) (out int) {
	for _, size := range sizes {
		out += size
	}
	return out
}
