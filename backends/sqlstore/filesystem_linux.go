package sqlstore

import "syscall"

// networkFileSystem names the file system of a file if it is on another computer. Such a file system may
// not keep the locks of a file, or only by chance. The numbers are those of statfs(2).
func networkFileSystem(path string) string {
	var info syscall.Statfs_t
	if syscall.Statfs(path, &info) != nil {
		return ""
	}
	return networkFileSystems[uint32(info.Type)]
}

var networkFileSystems = map[uint32]string{
	0x6969:     "NFS",
	0x517b:     "SMB",
	0xff534d42: "CIFS",
	0xfe534d42: "SMB",
	0x01021997: "9P",
	0x65735546: "FUSE, which may be on another computer",
	0x00c36400: "Ceph",
	0x0bd00bd0: "Lustre",
	0x5346414f: "AFS",
	0x73757245: "Coda",
	0x01161970: "GFS2, which other computers may have mounted",
	0x7461636f: "OCFS2, which other computers may have mounted",
	0x47504653: "GPFS, which other computers may have mounted",
	0x19830326: "BeeGFS",
	0x786f4256: "a shared folder of VirtualBox",
	0xbacbacbc: "a shared folder of VMware",
}
