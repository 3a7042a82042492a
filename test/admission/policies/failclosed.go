package policies

// Plugins returns the names of the NRI plugins of nri-blkio, which fail-closed pods require.
func Plugins() []string { return []string{"nri-blkio", "nri-blkio-validator"} }

// pluginName matches the name of an NRI plugin. It has no character with a meaning in YAML.
const pluginName = `[A-Za-z0-9][A-Za-z0-9._-]*`

// pluginList matches the lists of required plugins that CEL can extend: a list of YAML on one
// line or with one line for each name, or nothing. A comment could hide a name, so it is not
// accepted.
func pluginList() string {
	item := oneOf(pluginName, `"`+pluginName+`"`, `\x27`+pluginName+`\x27`)
	flow := `\[\s*(?:` + item + `(?:\s*,\s*` + item + `)*\s*)?\]`
	block := `-[ ]+` + item + `(?:[ ]*\n[ ]*-[ ]+` + item + `)*`
	return `^\s*` + oneOf(flow, block, "") + `\s*$`
}
