package policy

import "strings"

// suggest returns "did you mean ..." for the one candidate that is close to
// what was written, and "" if none is or several are equally close. What is
// long is compared with nothing: nobody reads a hint of that length.
func suggest(written string, candidates ...string) string {
	if len(written) > maxSuggest {
		return ""
	}
	const limit = 2
	written = strings.ToLower(written)
	best, ties, least := "", 0, limit+1
	for _, c := range candidates {
		if len(c) > maxSuggest {
			continue
		}
		switch d := distance(written, strings.ToLower(c), limit); {
		case d < least:
			best, ties, least = c, 1, d
		case d == least:
			ties++
		}
	}
	// A word of three letters is two typos away from too much.
	if least > limit || ties > 1 || least*2 >= len(best) {
		return ""
	}
	return "did you mean " + quoted(best) + "?"
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to get from a to b (optimal string alignment). What is over limit
// comes back as limit+1. It looks only at what limit allows to be aligned, so
// that its time grows with the length and not with the square of it.
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
		row[first-1] = limit + 1 // left of what is looked at
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
			if j < i+limit { // else nothing was looked at above
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
