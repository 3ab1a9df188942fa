package pinned

import (
	"bytes"
	"debug/elf"
	"debug/macho"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// Runnable says why the file at path cannot be run on this machine, in a clause without a remedy,
// or returns nil. It looks at the file's permissions and header and does not run it. A script
// counts as runnable.
func Runnable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	if err := executable(path); err != nil {
		return fmt.Errorf("%s is not executable", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	platforms, err := platforms(f)
	if err != nil {
		return fmt.Errorf("%s is not a program: %w", path, err)
	}
	if len(platforms) == 0 {
		return nil
	}
	for _, p := range platforms {
		if p == runtime.GOOS+"/"+runtime.GOARCH {
			return nil
		}
	}
	return fmt.Errorf("%s is a program for %s, and this machine is %s/%s",
		path, strings.Join(platforms, " and "), runtime.GOOS, runtime.GOARCH)
}

// platforms returns what the program f was built for, as GOOS/GOARCH, or nothing if f is a script.
// An ELF file seldom says which system it is for; it is taken for one of this system if this system
// uses ELF, else for one of Linux.
func platforms(f io.ReaderAt) ([]string, error) {
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, 0); err != nil {
		return nil, errors.New("it is shorter than the header of one")
	}
	switch {
	case bytes.HasPrefix(magic, []byte("#!")):
		return nil, nil
	case bytes.HasPrefix(magic, []byte("MZ")):
		return []string{"windows"}, nil
	case string(magic) == elf.ELFMAG:
		file, err := elf.NewFile(f)
		if err != nil {
			return nil, err
		}
		os := runtime.GOOS
		if os == "darwin" || os == "windows" {
			os = "linux"
		}
		return []string{os + "/" + elfArch(file)}, nil
	}
	if fat, err := macho.NewFatFile(f); err == nil {
		var all []string
		for _, a := range fat.Arches {
			all = append(all, "darwin/"+machoArch(a.Cpu))
		}
		return all, nil
	}
	if file, err := macho.NewFile(f); err == nil {
		return []string{"darwin/" + machoArch(file.Cpu)}, nil
	}
	return nil, errors.New("it has no header of one")
}

// elfArch returns the GOARCH of an ELF file, or the name of its machine if Go has none.
func elfArch(f *elf.File) string {
	little := f.Data == elf.ELFDATA2LSB
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64"
	case elf.EM_386:
		return "386"
	case elf.EM_AARCH64:
		return "arm64"
	case elf.EM_ARM:
		return "arm"
	case elf.EM_LOONGARCH:
		return "loong64"
	case elf.EM_RISCV:
		return "riscv64"
	case elf.EM_S390:
		return "s390x"
	case elf.EM_PPC64:
		if little {
			return "ppc64le"
		}
		return "ppc64"
	case elf.EM_MIPS:
		arch := "mips"
		if f.Class == elf.ELFCLASS64 {
			arch = "mips64"
		}
		if little {
			arch += "le"
		}
		return arch
	}
	return f.Machine.String()
}

// machoArch returns the GOARCH of a Mach-O file, or the name of its processor if Go has none.
func machoArch(cpu macho.Cpu) string {
	switch cpu {
	case macho.CpuAmd64:
		return "amd64"
	case macho.CpuArm64:
		return "arm64"
	case macho.Cpu386:
		return "386"
	}
	return cpu.String()
}
