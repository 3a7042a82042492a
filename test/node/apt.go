package node

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// aptSource is where a machine gets packages from: one entry of sources.list(5).
type aptSource struct {
	uri, suite, signedBy string

	security string // the URI of the security archive, in debianMirror's answer only
}

// debianMirror returns the mirror of the machine's own apt sources, so that this
// project names no host and works behind whatever the machine is set up for.
func debianMirror(aptDir string) (aptSource, error) {
	files, _ := filepath.Glob(filepath.Join(aptDir, "sources.list.d", "*"))
	files = append([]string{filepath.Join(aptDir, "sources.list")}, files...)
	var sources []aptSource
	for _, name := range files {
		found, err := readAptSources(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return aptSource{}, err
		}
		sources = append(sources, found...)
	}
	for _, s := range sources {
		if isDebianRelease(s.suite) {
			s.security = securityURI(sources, s.uri)
			return s, nil
		}
	}
	return aptSource{}, fmt.Errorf("no Debian mirror in %s: is this machine a Debian 12 or 13?", aptDir)
}

// securitySuffix ends the names of the security archive's suites.
const securitySuffix = "-security"

// securityURI returns the URI of Debian's security archive: the machine's own, else the
// directory that mirrors keep beside the main archive, http://MIRROR/debian-security.
func securityURI(sources []aptSource, main string) string {
	for _, s := range sources {
		if release, ok := strings.CutSuffix(s.suite, securitySuffix); ok && isDebianRelease(release) {
			return s.uri
		}
	}
	return strings.TrimSuffix(main, "/") + securitySuffix
}

// isDebianRelease reports whether a suite is a release of Debian's main archive, and not one of
// its security and update suites or of another vendor's repository.
func isDebianRelease(suite string) bool {
	return slices.Contains([]string{"bookworm", "trixie", "oldstable", "stable", "testing", "unstable", "sid"}, suite)
}

func readAptSources(name string) ([]aptSource, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	switch filepath.Ext(name) {
	case ".list":
		return parseAptList(string(data)), nil
	case ".sources":
		return parseAptDeb822(string(data)), nil
	}
	return nil, nil
}

// parseAptList parses the one-line form, sources.list(5):
//
//	deb [arch=amd64 signed-by=/usr/share/keyrings/k.gpg] URI SUITE COMPONENT...
//
// Lines of other forms are apt's business and are passed over.
func parseAptList(text string) []aptSource {
	var sources []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(strings.ReplaceAll(line, "\t", " "))
		rest, ok := strings.CutPrefix(line, "deb ")
		if !ok {
			continue
		}
		var s aptSource
		if options, after, ok := strings.Cut(strings.TrimSpace(rest), "]"); ok && strings.HasPrefix(options, "[") {
			for option := range strings.FieldsSeq(options[1:]) {
				if value, ok := strings.CutPrefix(option, "signed-by="); ok {
					s.signedBy = value
				}
			}
			rest = after
		}
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			continue
		}
		s.uri, s.suite = fields[0], fields[1]
		sources = append(sources, s)
	}
	return sources
}

// parseAptDeb822 parses the stanza form, sources.list(5):
//
//	Types: deb
//	URIs: URI...
//	Suites: SUITE...
//	Components: main
//	Signed-By: /usr/share/keyrings/k.gpg
func parseAptDeb822(text string) []aptSource {
	var sources []aptSource
	for _, stanza := range splitStanzas(text) {
		if !slices.Contains(strings.Fields(stanza["types"]), "deb") || strings.EqualFold(stanza["enabled"], "no") {
			continue
		}
		signedBy := stanza["signed-by"]
		if !strings.HasPrefix(signedBy, "/") {
			signedBy = "" // an embedded key: the machine's own keyring serves
		}
		for uri := range strings.FieldsSeq(stanza["uris"]) {
			for suite := range strings.FieldsSeq(stanza["suites"]) {
				sources = append(sources, aptSource{uri: uri, suite: suite, signedBy: signedBy})
			}
		}
	}
	return sources
}

// splitStanzas returns each stanza's fields by lower-case name. Continuation
// lines belong to the field above; comments are dropped.
func splitStanzas(text string) []map[string]string {
	var stanzas []map[string]string
	var current map[string]string
	var field string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n\r \t")
		switch {
		case line == "":
			current = nil
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			if current != nil {
				current[field] += " " + strings.TrimSpace(line)
			}
		default:
			name, value, _ := strings.Cut(line, ":")
			if current == nil {
				current = make(map[string]string)
				stanzas = append(stanzas, current)
			}
			field = strings.ToLower(strings.TrimSpace(name))
			current[field] = strings.TrimSpace(value)
		}
	}
	return stanzas
}

// keyring returns what verifies Debian's releases: the source's own, or the file
// that the package debian-archive-keyring installs. It is "" where neither is,
// and apt then uses what it trusts already.
func (s aptSource) keyring() string {
	for _, name := range []string{s.signedBy, "/usr/share/keyrings/debian-archive-keyring.gpg"} {
		if name == "" {
			continue
		}
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	return ""
}

// line formats the source for another suite, of the same mirror or, if the suite is
// one of the security archive's, of that.
func (s aptSource) line(suite string) string {
	uri, options := s.uri, ""
	if strings.HasSuffix(suite, securitySuffix) {
		uri = s.security
	}
	if k := s.keyring(); k != "" {
		options = "[signed-by=" + k + "] "
	}
	return fmt.Sprintf("deb %s%s %s main\n", options, uri, suite)
}
