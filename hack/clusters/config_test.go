// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidateAcceptsOnlyWhatCanWork(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Config)
		want   error
	}{
		"the default": {
			reason: "a configuration need not say anything",
			change: func(*Config) {},
		},
		"a name with a path in it": {
			reason: "the name becomes part of paths that are removed",
			change: func(c *Config) { c.Name = "../other" },
			want:   ErrConfig,
		},
		"a long name": {
			reason: "sockets have short paths",
			change: func(c *Config) { c.Name = "abcdefghijklmnopqrstu" },
			want:   ErrConfig,
		},
		"no spoke": {
			reason: "zero is the default, less is nothing",
			change: func(c *Config) { c.Spokes = -1 },
			want:   ErrConfig,
		},
		"more spokes than addresses": {
			reason: "a set has sixteen networks, one of them the hub's",
			change: func(c *Config) { c.Spokes = 16 },
			want:   ErrConfig,
		},
		"as many spokes as addresses": {
			reason: "the last network is used as well",
			change: func(c *Config) { c.Spokes = 15 },
		},
		"a provider that does not exist": {
			reason: "falling back to another would test something else",
			change: func(c *Config) { c.Provider = "minikube" },
			want:   ErrConfig,
		},
		"existing clusters without kubeconfigs": {
			reason: "there is nothing to find them by",
			change: func(c *Config) { c.Provider = Existing },
			want:   ErrConfig,
		},
		"existing clusters": {
			reason: "a hub and a spoke are enough",
			change: func(c *Config) {
				c.Provider, c.HubKubeconfig, c.SpokeKubeconfigs = Existing, "/hub", []string{"/spoke"}
			},
		},
		"a relative state directory": {
			reason: "another process, elsewhere, has to find the set",
			change: func(c *Config) { c.StateDir = "state" },
			want:   ErrConfig,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config := Config{StateDir: t.TempDir()}
			config.Default()
			tc.change(&config)
			if err := config.Validate(); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v: %s", err, tc.want, tc.reason)
			}
		})
	}
}

func TestDefaultTakesTheEnvironmentWhereNothingIsSet(t *testing.T) {
	t.Setenv(ProviderEnv, "controlplane")
	t.Setenv(HubKubeconfigEnv, "/env/hub")
	t.Setenv(SpokeKubeconfigsEnv, "/env/one:/env/two")
	t.Setenv(StateEnv, "/env/state")
	config := Config{Provider: Existing}
	config.Default()
	if config.Provider != Existing || config.HubKubeconfig != "/env/hub" || config.StateDir != "/env/state" {
		t.Errorf("provider %s, hub %s, state %s", config.Provider, config.HubKubeconfig, config.StateDir)
	}
	if diff := cmp.Diff([]string{"/env/one", "/env/two"}, config.SpokeKubeconfigs); diff != "" {
		t.Errorf("spokes (-want +got):\n%s", diff)
	}
}

func TestChoosePrefersWhatWasAskedFor(t *testing.T) {
	chosen, _ := choose(t.Context(), Config{Provider: ControlPlane, HubKubeconfig: "/hub"})
	if chosen != ControlPlane {
		t.Errorf("chosen: %s", chosen)
	}
	chosen, _ = choose(t.Context(), Config{HubKubeconfig: "/hub"})
	if chosen != Existing {
		t.Errorf("chosen with kubeconfigs: %s", chosen)
	}
	t.Setenv("PATH", t.TempDir()) // no docker in it
	chosen, why := choose(t.Context(), Config{})
	want := Netns
	if lacksForNetns() != "" {
		want = ControlPlane
	}
	if chosen != want {
		t.Errorf("chosen without Docker: %s (%s), want %s", chosen, why, want)
	}
}

func TestNoEngineIsStartedInPlaceOfOneThatIsNamed(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	_, err := suits(t.Context(), Config{Provider: Kind}, Kind)
	if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "unix:///nowhere/docker.sock") {
		t.Errorf("error %v, want %v for the engine that is named", err, ErrUnsupported)
	}
}

func TestLacksCapabilitiesLooksAtTheEffectiveOnes(t *testing.T) {
	cases := map[string]struct {
		reason string
		status string
		enough bool
	}{
		"all": {
			reason: "root of a machine", status: "Name:\tx\nCapEff:\t000001ffffffffff\n", enough: true,
		},
		"those of a container": {
			reason: "Docker's default has no SYS_ADMIN", status: "CapEff:\t00000000a80425fb\n",
		},
		"permitted, not effective": {
			reason: "what is not in force does not help", status: "CapPrm:\t000001ffffffffff\nCapEff:\t0000000000000000\n",
		},
		"unreadable": {
			reason: "what is not known is not there", status: "CapEff:\tall\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := lacksCapabilities(tc.status); (got == "") != tc.enough {
				t.Errorf("lacks %q, want enough %t: %s", got, tc.enough, tc.reason)
			}
		})
	}
}
