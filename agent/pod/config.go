// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/pod/translate"
)

// defaultWorkers is how many pods are worked on at once.
const defaultWorkers = 16

// Config of an Engine.
type Config struct {
	// REST reaches the spoke's API server as the agent. Required.
	REST *rest.Config
	// Account is the user that everything is read and written as; empty is the
	// agent itself.
	Account string
	// HubID marks what is made for this hub. Required; a label value.
	HubID string
	// Namespace is the agent's own, which takes no pods. Required.
	Namespace string
	// Reserved are more namespaces of the spoke that take no pods.
	Reserved []string
	// Prefix is put before the hub's namespaces.
	Prefix string
	// Namespaces of the spoke, when not empty, are the only ones that take pods.
	Namespaces []string
	// Tokens says whose tokens pods get. Default translate.TokensSpoke.
	Tokens translate.Tokens
	// APIHost and APIPort, when not empty, are where pods with tokens of the hub find
	// the API server that issued them.
	APIHost, APIPort string
	// HostAccess lets pods reach for their nodes.
	HostAccess bool
	// Annotations of pods that go along besides those that always do, see
	// translate.Options.
	Annotations []string
	// SplitLabel, when not empty, is the label by whose values the nodes are shown in
	// groups; Groups tells which there are.
	SplitLabel string
	Groups     Groups
	// Workers bounds how many pods are worked on at once. Default 16.
	Workers int
	// Logger of the engine; the zero value is silent.
	Logger logr.Logger
	// Registerer takes the metrics; nil keeps them to ourselves.
	Registerer prometheus.Registerer
}

// Default fills what was left empty.
func (c *Config) Default() {
	if c.Tokens == "" {
		c.Tokens = translate.TokensSpoke
	}
	if c.Workers == 0 {
		c.Workers = defaultWorkers
	}
}

// Validate reports everything that is wrong, joined.
func (c *Config) Validate() error {
	var errs []error
	if c.REST == nil {
		errs = append(errs, errors.New("field REST is required"))
	}
	if msgs := validation.IsValidLabelValue(c.HubID); c.HubID == "" || len(msgs) > 0 {
		errs = append(errs, fmt.Errorf("field HubID: %q is not a label value", c.HubID))
	}
	if c.Namespace == "" {
		errs = append(errs, errors.New("field Namespace is required"))
	}
	if !slices.Contains([]translate.Tokens{translate.TokensSpoke, translate.TokensHub, translate.TokensNone}, c.Tokens) {
		errs = append(errs, fmt.Errorf("field Tokens: %q is not known", c.Tokens))
	}
	if c.SplitLabel != "" && c.Groups == nil {
		errs = append(errs, errors.New("field Groups is required with SplitLabel"))
	}
	if c.Workers < 0 {
		errs = append(errs, fmt.Errorf("field Workers: %d is negative", c.Workers))
	}
	return errors.Join(errs...)
}
