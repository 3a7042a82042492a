package policies

import (
	"strings"

	"github.com/nri-blkio/nri-blkio/policy/annotation"
)

const (
	// claimKey is the annotation of a claim.
	claimKey = "limits." + annotation.Domain
	// claimBytes bounds the annotation of a claim, and rateBytes a rate in the parameters of a class. The cluster part
	// passes no longer ones on.
	claimBytes = 4 << 10
	rateBytes  = 64
	// claimsReadable is the number of characters of limits of claims that the policy for the grammar reads in one request.
	claimsReadable = 2 * claimBytes
)

// claimHint is the correct form of the annotation of a claim.
const claimHint = `(write ` + claimKey + `: "wbps=50Mi")`

// claimTexts returns the patterns and texts for limits of claims and for the parameters of their classes.
func claimTexts() map[string]any {
	return map[string]any{
		// The policies of the grammar, with what their bindings do.
		"Bindings": map[string]string{
			"nri-blkio-grammar": "Deny", "nri-blkio-grammar-warn": "Warn", "nri-blkio-grammar-claims": "Deny", "nri-blkio-grammar-claims-warn": "Warn", "nri-blkio-grammar-classes": "Deny",
		},
		"ClaimKey": claimKey, "OfClaim": ofClaim(), "OfPod": ofPod(),
		"OfPodCause": literal(": " + claimText("* wbps=1Mi")), "OfClaimCause": literal(": " + ofClaimText()),
		"ClaimBytes": claimBytes, "ClaimsReadable": claimsReadable, "ClaimEntry": claimEntry(), "ClaimCauses": claimCauses(),
		"ClaimKeyCause": literal(": unknown annotation of a claim " + claimHint),
		"UnusedCause":   literal(": the annotation has no effect on a claim, only on pods " + claimHint),
		"ClaimEmpty":    literal(": " + claimText("")),
		"ClaimTooLarge": literal(": " + strings.Replace(claimText(strings.Repeat("x", annotation.MaxValue+1)), "64 KiB", "4 KiB", 1)),

		"Grown": grown, "Parameter": parameter(), "ParameterRate": parameterRate(), "RateBytes": rateBytes,
		"ParameterCauses":   chain("limits", valueCauses(`^`, "/data ", `$`)),
		"ParameterKeyCause": chain("limits", []cause{unknownKey("", "/data ")}),
		"ParametersOverlap": "'parameters: ' + " + chain("limits", []cause{overlap("")}),
		"RateTooLarge":      literal(": the rate is longer than 64 bytes (write a whole number such as 50Mi)"),
	}
}

// claimText returns the cause and the hint of the grammar about the annotation of a claim. It panics if there is no mistake, as
// errorText does.
func claimText(value string) string {
	_, err := annotation.ParseClaim("data", value, 1)
	if err == nil {
		panic("no mistake in the limits of a claim: " + value)
	}
	p := annotation.Problem{Cause: err.Cause, Hint: err.Hint}
	return p.String()
}

// ofClaimText returns the cause and the hint of the grammar about the annotation of a claim on a pod.
func ofClaimText() string {
	err := annotation.Parse(map[string]string{claimKey: "wbps=1Mi"}).OfClaim()
	p := annotation.Problem{Cause: err.Cause, Hint: err.Hint}
	return p.String()
}

// claimEntry matches an entry of the annotation of a claim. It accepts fractions, zeros, and rates that are too large or repeated, also as numbers of
// a rate that grows. These are apart by ";", which is in no entry.
func claimEntry() string {
	one := keys(every) + `=` + rate()
	return `^` + blank + `*` + one + `(?:[ \t\r;]+` + one + `)*` + blank + `*$`
}

// claimCauses returns the causes of a wrong entry of the annotation of a claim.
func claimCauses() string {
	return chain(claimKind, append([]cause{
		{is(control), "wbps=1Mi\x1b", "", ""},
		{is(`^` + oneOf(unquoted, `"`)), "/data wbps=1Mi; wbps=1Mi", "/data", "the first word"},
		{is(`(?:^|` + blank + `)[^= \t\r]+` + end), "wbps:1Mi", "wbps:1Mi", "a word"},
		unknownKey(isNot(`^`+keys(every)+`=[^ \t\r]*(?:`+blank+`+`+keys(every)+`=[^ \t\r]*)*$`), ""),
		{is(`(?:^|` + blank + `)` + keys(every) + `=[^ \t\r]*/[kKmMgGtT]`), "wbps=1Mi/GB", "1Mi/GB", ""},
	}, valueCauses(`(?:^|`+blank+`)`, "", end)...))
}

// parameter matches the keys of rates in the parameters of a class that belong to the plugin.
func parameter() string { return `^` + domain + `/` + keys(every) + `$` }

// parameterRate matches a key without its prefix, and its rate.
func parameterRate() string { return `^` + keys(every) + `=` + rate() + `$` }
