package lab

import "testing"

func TestWhereACgroupIsMade(t *testing.T) {
	for _, test := range []struct {
		text, dir string
		files     cgroupFiles
	}{
		{"8:pids:/\n4:memory:/a/b\n0::/\n", "/sys/fs/cgroup/memory/a/b", cgroupV1},
		{"4:cpu,memory:/\n", "/sys/fs/cgroup/memory", cgroupV1},
		{"0::/user.slice/session.scope\n", "/sys/fs/cgroup/user.slice", cgroupV2},
		{"0::/\n", "/sys/fs/cgroup", cgroupV2},
		{"3:memorys:/x\n0::/x\n", "/sys/fs/cgroup", cgroupV2},
	} {
		dir, files, err := memoryCgroup(test.text)
		if err != nil || dir != test.dir || files != test.files {
			t.Errorf("%q: %s %v, %v", test.text, dir, files, err)
		}
	}
	for _, text := range []string{"", "garbage", "3:pids:/\n"} {
		if dir, _, err := memoryCgroup(text); err == nil {
			t.Errorf("%q: %s", text, dir)
		}
	}
}
