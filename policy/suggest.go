package policy

import "strings"

// suggest returns "did you mean ..." for the one candidate that is close to
// what was written, and "" if none is or several are equally close.
func suggest(written string, candidates ...string) string {
	best, ties, least := "", 0, 3
	for _, c := range candidates {
		switch d := distance(strings.ToLower(written), strings.ToLower(c), 2); {
		case d < least:
			best, ties, least = c, 1, d
		case d == least:
			ties++
		}
	}
	// A word of three letters is two typos away from too much.
	if least > 2 || ties > 1 || least*2 >= len(best) {
		return ""
	}
	return "did you mean " + quoted(best) + "?"
}

// distance counts the letters to insert, delete, replace or swap with their
// neighbour to get from a to b (optimal string alignment). What is over limit
// comes back as limit+1.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return min(prev[len(b)], limit+1)
}
