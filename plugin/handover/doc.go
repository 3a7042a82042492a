// Package handover hands over the data of containers that end: their limits are lifted
// before their cgroups are removed, and what they left unwritten is synced.
package handover
