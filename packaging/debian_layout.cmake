# debian_layout.cmake - run by cpack before it packs: the documentation's names, and its compression,
# as Debian's policy wants them (12.1, 12.5, 12.7).
set(stages ${CPACK_TEMPORARY_DIRECTORY}/*/usr/share)
file(GLOB to_compress ${stages}/man/man1/*.1)

# The project's own changes, and those of the package, which has none.
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)  # by SOURCE_DATE_EPOCH, if it is set
file(GLOB changes ${stages}/doc/*/CHANGELOG.md)
foreach(file IN LISTS changes)
  get_filename_component(folder ${file} DIRECTORY)
  file(RENAME ${file} ${folder}/changelog)
  file(WRITE ${folder}/changelog.Debian
"convgrad (${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=low

  * Version ${CPACK_PACKAGE_VERSION}; changelog.gz has its changes.

 -- ${CPACK_PACKAGE_CONTACT}  ${date}
")
  list(APPEND to_compress ${folder}/changelog ${folder}/changelog.Debian)
endforeach()
foreach(file IN LISTS to_compress)
  execute_process(COMMAND gzip -9nf ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

file(GLOB licenses ${stages}/doc/*/LICENSE)
foreach(file IN LISTS licenses)
  get_filename_component(folder ${file} DIRECTORY)
  file(REMOVE ${file})
  file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${folder}
    FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
endforeach()
