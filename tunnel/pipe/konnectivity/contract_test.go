// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package konnectivity

import "testing"

// TestPipe checks the contract of package pipe.
func TestPipe(t *testing.T) {
	for name, check := range map[string]func(*testing.T){
		"bytes travel both ways":                           checkBytes,
		"large writes arrive whole":                        checkLargeWrites,
		"streams have addresses and no half-close":         checkAddresses,
		"concurrent use and close does not hang":           checkConcurrentClose,
		"the peer is what its certificate says":            checkPeer,
		"a stranger is refused":                            checkStrangers,
		"a process with a bad name is refused":             checkProcessNames,
		"a cluster that is not admitted is refused":        checkAdmission,
		"the pipes of a cluster are bounded":               checkPerCluster,
		"a second stream is refused while one is open":     checkBusy,
		"a stream that the agent closes is no clean end":   checkAgentClose,
		"a stream that the hub closes is no clean end":     checkHubClose,
		"closing the pipe ends the link":                   checkPipeClose,
		"closing the link ends the pipe":                   checkLinkClose,
		"the pipe is closed when its handler returns":      checkHandlerReturn,
		"losing the connection ends both ends":             checkCut,
		"an agent that stops reading is freed by Close":    checkWedge,
		"a hub that stops reading does not stop the close": checkStalledHub,
		"a dial to a dead agent is bounded":                checkDeadAgent,
		"a cancelled dial leaves the pipe usable":          checkCancelledDial,
		"a thousand dials leave nothing behind":            checkManyDials,
		"two hundred connects and cuts leave nothing":      checkCycles,
		"a cut at any byte is an error and no clean end":   checkOffsets,
	} {
		t.Run(name, check)
	}
}
