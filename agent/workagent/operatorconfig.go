// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

var errAuthUnsupported = errors.New("only disabled: true is supported: everybody who reaches --listen may read it")

// operatorConfig is what the agent takes of a GenericOperatorConfig of
// operator.openshift.io/v1alpha1, in which OCM's agent is configured by --config.
type operatorConfig struct {
	metav1.TypeMeta `json:",inline"`

	ServingInfo struct {
		BindAddress   string   `json:"bindAddress"`
		MinTLSVersion string   `json:"minTLSVersion"`
		CipherSuites  []string `json:"cipherSuites"`
	} `json:"servingInfo"`
	LeaderElection struct {
		Disable       bool            `json:"disable"`
		LeaseDuration metav1.Duration `json:"leaseDuration"`
		RenewDeadline metav1.Duration `json:"renewDeadline"`
		RetryPeriod   metav1.Duration `json:"retryPeriod"`
	} `json:"leaderElection"`
	Authentication *delegatedAuth `json:"authentication"`
	Authorization  *delegatedAuth `json:"authorization"`
}

type delegatedAuth struct {
	Disabled bool `json:"disabled"`
}

// readConfigFile takes the file of --config for flags that are not given.
func (f *Flags) readConfigFile(fs *pflag.FlagSet) error {
	if f.file == "" {
		return nil
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("flag --config: %w", err)
	}
	var c operatorConfig
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return fmt.Errorf("flag --config: file %q: %w", f.file, err)
	}
	for name, d := range map[string]*delegatedAuth{"authentication": c.Authentication, "authorization": c.Authorization} {
		if d != nil && !d.Disabled {
			return fmt.Errorf("flag --config: file %q: %s: %w", f.file, name, errAuthUnsupported)
		}
	}
	for name, value := range c.asFlags() {
		if fs.Changed(name) || slices.Contains([]string{"", "0s", "false"}, value) {
			continue
		}
		if err := fs.Set(name, value); err != nil {
			return fmt.Errorf("flag --config: file %q: %w", f.file, err)
		}
	}
	f.TerminateOnFiles = append(f.TerminateOnFiles, f.file)
	return nil
}

// asFlags are those that say the same, and their values.
func (c *operatorConfig) asFlags() map[string]string {
	return map[string]string{
		"listen":                         c.ServingInfo.BindAddress,
		"tls-min-version":                c.ServingInfo.MinTLSVersion,
		"tls-cipher-suites":              strings.Join(c.ServingInfo.CipherSuites, ","),
		"disable-leader-election":        strconv.FormatBool(c.LeaderElection.Disable),
		"leader-election-lease-duration": c.LeaderElection.LeaseDuration.Duration.String(),
		"leader-election-renew-deadline": c.LeaderElection.RenewDeadline.Duration.String(),
		"leader-election-retry-period":   c.LeaderElection.RetryPeriod.Duration.String(),
	}
}
