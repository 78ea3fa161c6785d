// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import "fmt"

// The doors of an agent. A door is named by the authority of a request, so
// that http://kube/api/v1/nodes asks the door to the spoke's API server.
const (
	// DoorControl is the conversation that keeps a session alive. It belongs to
	// this package.
	DoorControl = "control"
	// DoorSync replicates typed resources both ways.
	DoorSync = "sync"
	// DoorKube leads to the spoke's API server.
	DoorKube = "kube"
	// DoorNode answers for the virtual node's figures.
	DoorNode = "node"
)

// doorLabelOther stands in metrics for doors without a constant above, so that
// the number of series does not depend on what is asked for.
const doorLabelOther = "other"

// maxDoorName bounds what is parsed and repeated in errors.
const maxDoorName = 63

// ParseDoor returns the door that an authority names. Only the canonical form
// is accepted, a lower-case DNS label without port, user or trailing dot, so
// that no two spellings reach one door. Errors wrap ErrDoor.
func ParseDoor(authority string) (string, error) {
	if authority == "" || len(authority) > maxDoorName {
		return "", fmt.Errorf("authority %.80q: %w", authority, ErrDoor)
	}
	for i := range len(authority) {
		if !isDoorByte(authority, i) {
			return "", fmt.Errorf("authority %q: %w", authority, ErrDoor)
		}
	}
	return authority, nil
}

func isDoorByte(name string, i int) bool {
	c := name[i]
	if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
		return true
	}
	return c == '-' && i > 0 && i < len(name)-1
}

// usesReservedStreams reports whether a door may use the streams that are kept free of
// ordinary traffic.
func usesReservedStreams(door string) bool {
	return door == DoorControl || door == DoorSync
}

// isBackground reports whether a stream to the door does not keep a draining
// session alive: Control lasts as long as the session, and Sync moves to the
// next session and resumes there.
func isBackground(door string) bool {
	return door == DoorControl || door == DoorSync
}

func doorLabel(door string) string {
	switch door {
	case DoorControl, DoorSync, DoorKube, DoorNode:
		return door
	default:
		return doorLabelOther
	}
}
