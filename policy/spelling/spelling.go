// Package spelling finds the correct word for a misspelled one.
package spelling

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/quote"
)

const (
	maxTypos = 2   // between a word and the one that was meant
	maxBytes = 128 // of the words that are compared
)

// Nearest returns the candidate that is at most two typos from the written word, regardless of case. It returns
// false if there is none, if several are equally near, or if two typos are half of the word or more. It does
// not compare words over 128 bytes.
func Nearest(written string, candidates ...string) (string, bool) {
	if len(written) > maxBytes {
		return "", false
	}
	written = strings.ToLower(written)
	best, ties, least := "", 0, maxTypos+1
	for _, c := range candidates {
		if len(c) > maxBytes {
			continue
		}
		switch d := distance(written, strings.ToLower(c), maxTypos); {
		case d < least:
			best, ties, least = c, 1, d
		case d == least:
			ties++
		}
	}
	if least > maxTypos || ties > 1 || least*2 >= len(best) {
		return "", false
	}
	return best, true
}

// Hint returns "did you mean ...?" with the result of Nearest, or "" if there is none.
func Hint(written string, candidates ...string) string {
	meant, ok := Nearest(written, candidates...)
	if !ok {
		return ""
	}
	return "did you mean " + quote.Text(meant) + "?"
}

// distance returns the number of letters to insert, delete, replace or swap with their neighbour to get from a
// to b (optimal string alignment). It returns limit+1 if there are more. It computes only the band of the
// matrix that the limit allows, so the time grows with the length and not with its square.
func distance(a, b string, limit int) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		first, last := max(1, i-limit), min(len(b), i+limit)
		row[first-1] = limit + 1 // left of the band
		if first == 1 {
			row[0] = i
		}
		least := row[first-1]
		for j := first; j <= last; j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(row[j-1]+1, prev[j-1]+cost)
			if j < i+limit { // otherwise the cell above is outside the band
				row[j] = min(row[j], prev[j]+1)
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return limit + 1
		}
		before, prev, row = prev, row, before
	}
	return min(prev[len(b)], limit+1)
}
