// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

// Local is what a side says of itself.
type Local struct {
	MinProtocol, MaxProtocol uint32
	Features                 []string
	Version                  string
	ProcessID                string
	// KubeSystemUID is empty on the hub.
	KubeSystemUID string
	// Standby says that the agent does not execute works now.
	Standby bool
}

// Agreement is what the two hellos lead to.
type Agreement struct {
	// Protocol is the highest number in both ranges.
	Protocol uint32
	// Features are those that both sides named, sorted.
	Features []string
	// Version, ProcessID and KubeSystemUID are the peer's.
	Version       string
	ProcessID     string
	KubeSystemUID string
	// Standby says that the peer does not execute works now. A peer without
	// FeatureRole executes.
	Standby bool
}

// Roles tells whether both sides speak of roles.
func (a Agreement) Roles() bool { return slices.Contains(a.Features, FeatureRole) }

func (l Local) hello() *rpcv1.Hello {
	return &rpcv1.Hello{
		MinProtocol:   l.MinProtocol,
		MaxProtocol:   l.MaxProtocol,
		Features:      l.Features,
		Version:       l.Version,
		ProcessId:     l.ProcessID,
		KubeSystemUid: l.KubeSystemUID,
		Standby:       l.Standby,
	}
}

// agree compares a peer's hello with ours. Errors wrap ErrFrame or ErrVersion.
func (l Local) agree(peer *rpcv1.Hello) (Agreement, error) {
	if err := checkHello(peer); err != nil {
		return Agreement{}, err
	}
	highest := min(l.MaxProtocol, peer.GetMaxProtocol())
	if highest < max(l.MinProtocol, peer.GetMinProtocol()) {
		return Agreement{}, fmt.Errorf("ours is %d to %d, the peer's %d to %d: %w",
			l.MinProtocol, l.MaxProtocol, peer.GetMinProtocol(), peer.GetMaxProtocol(), ErrVersion)
	}
	agreement := Agreement{
		Protocol:      highest,
		Features:      intersection(l.Features, peer.GetFeatures()),
		Version:       peer.GetVersion(),
		ProcessID:     peer.GetProcessId(),
		KubeSystemUID: peer.GetKubeSystemUid(),
	}
	agreement.Standby = agreement.Roles() && peer.GetStandby()
	return agreement, nil
}

func intersection(a, b []string) []string {
	var both []string
	for _, name := range a {
		if slices.Contains(b, name) {
			both = append(both, name)
		}
	}
	slices.Sort(both)
	return slices.Compact(both)
}

func checkHello(h *rpcv1.Hello) error {
	if h.GetMinProtocol() == 0 || h.GetMinProtocol() > h.GetMaxProtocol() {
		return fmt.Errorf("hello: protocols %d to %d: %w", h.GetMinProtocol(), h.GetMaxProtocol(), ErrFrame)
	}
	if n := len(h.GetFeatures()); n > MaxFeatures {
		return fmt.Errorf("hello: %d features: %w", n, ErrFrame)
	}
	for _, name := range h.GetFeatures() {
		if err := checkText("feature", name, MaxName); err != nil {
			return err
		}
	}
	if err := checkText("version", h.GetVersion(), MaxVersion); err != nil {
		return err
	}
	if err := checkText("process id", h.GetProcessId(), MaxName); err != nil {
		return err
	}
	return checkText("kube-system UID", h.GetKubeSystemUid(), MaxName)
}

// checkText refuses what could not be shown to people or put into a label.
func checkText(what, s string, most int) error {
	if len(s) > most || !utf8.ValidString(s) {
		return fmt.Errorf("hello: %s of %d bytes: %w", what, len(s), ErrFrame)
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f {
			return fmt.Errorf("hello: %s with control characters: %w", what, ErrFrame)
		}
	}
	return nil
}

// Reason shortens a text for people to what a frame carries.
func Reason(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= MaxReason {
		return text
	}
	text = text[:MaxReason]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text
}

// RenewAt is when a certificate is to be renewed: at two thirds of its life.
func RenewAt(notBefore, notAfter time.Time) time.Time {
	return notBefore.Add(notAfter.Sub(notBefore) / 3 * 2)
}
