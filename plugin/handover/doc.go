// Package handover hands over the data of containers that end: their limits are lifted
// before their cgroups are removed.
package handover
