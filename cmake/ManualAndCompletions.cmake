# Manual pages and shell completions. Both come from the program that was just built, so that they
# cannot say anything else than it does; nothing of them is committed.
set(CONVGRAD_COMPLETIONS ${PROJECT_BINARY_DIR}/completions)
add_custom_command(OUTPUT ${CONVGRAD_COMPLETIONS}/convgrad
  BYPRODUCTS ${CONVGRAD_COMPLETIONS}/_convgrad
  COMMAND ${PROJECT_SOURCE_DIR}/scripts/make_completions ${CONVGRAD_COMMAND}
          ${CONVGRAD_COMPLETIONS}
  DEPENDS convgrad_program ${PROJECT_SOURCE_DIR}/scripts/make_completions
  VERBATIM)
add_custom_target(convgrad_completions ALL DEPENDS ${CONVGRAD_COMPLETIONS}/convgrad)

install(FILES ${CONVGRAD_COMPLETIONS}/convgrad COMPONENT program
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CONVGRAD_COMPLETIONS}/_convgrad COMPONENT program
  DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)

find_program(CONVGRAD_HELP2MAN help2man)
if(CONVGRAD_HELP2MAN)
  set(CONVGRAD_MANUAL ${PROJECT_BINARY_DIR}/man)
  add_custom_command(OUTPUT ${CONVGRAD_MANUAL}/convgrad.1
    COMMAND ${PROJECT_SOURCE_DIR}/scripts/make_man ${CONVGRAD_COMMAND} ${CONVGRAD_MANUAL}
    DEPENDS convgrad_program ${PROJECT_SOURCE_DIR}/scripts/make_man
            ${PROJECT_SOURCE_DIR}/docs/convgrad.h2m
    VERBATIM)
  add_custom_target(convgrad_manual ALL DEPENDS ${CONVGRAD_MANUAL}/convgrad.1)
  install(DIRECTORY ${CONVGRAD_MANUAL}/ COMPONENT program DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
else()
  message(STATUS "convgrad: no manual pages, help2man is not installed")
endif()
