// Package handover hands over the data of containers that end. It lifts their limits before their cgroups are
// removed, and syncs their unwritten data.
package handover
